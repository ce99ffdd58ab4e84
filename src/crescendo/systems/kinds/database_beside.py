"""How does a system get a PostgreSQL of its own, in which its nodes share what they store?

A process beside them starts the embedded one, on a port of the loopback interface, with its data in the directory of
the instance. Knows that process only as a program that reads a plan, and creates no tables.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crescendo.systems.base import Blueprint, Launch
from crescendo.systems.instance_dir import DATA
from crescendo.systems.ports import HOST

DATABASE = "database"
"""The name of its port and of its process."""

_PLAN, _OUTSIDE_DIR = "database.json", "outside-directory"
_USER, _NAME = "mlmq", "postgres"  # of the embedded PostgreSQL
_ACCOUNT = "nobody"  # initdb insists on an account with a name


@dataclass(frozen=True)
class DatabaseBeside:
    """A PostgreSQL that runs before the nodes do."""

    launch: Launch
    connection: Mapping[str, str]  # url, user and password for JDBC
    plan: str

    def added_to(self, blueprint: Blueprint) -> Blueprint:
        """The blueprint with the files of the database, and an account that may run it."""
        return replace(
            blueprint,
            files={**blueprint.files, _PLAN: self.plan},
            secrets=blueprint.secrets | {_PLAN},
            account=_ACCOUNT,
            outside_dir_file=_OUTSIDE_DIR,
        )


def plan_database(directory: Path, port: int, password: str) -> DatabaseBeside:
    document = {
        "data": str(directory / DATA / _NAME),
        # Started by root, PostgreSQL runs as another account, which may not reach our directory.
        "outside_dir_file": str(directory / _OUTSIDE_DIR),
        "port": port,
        "password": password,
    }
    argv = (sys.executable, "-m", "crescendo.mlmq.postgres", str(directory / _PLAN))
    connection = {"url": f"jdbc:postgresql://{HOST}:{port}/{_NAME}", "user": _USER, "password": password}
    return DatabaseBeside(Launch(DATABASE, argv, listens_on=port), connection, json.dumps(document, indent=2) + "\n")
