"""What is in the configuration file of a router?

For qpid-dispatch and skupper-router: the template of the router's own schema, filled with the variables of the node.
Passwords stand in a file of their own, which the configuration names.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment

from crescendo.topology.generate import ROUTE_CONTAINER, Variables
from crescendo.topology.rendering.access import Access
from crescendo.topology.rendering.router_schema import (
    RouterSchema,
    check_variables,
    find_schema,
    read_schema,
    schema_of_variables,
    template_of,
)

FILES = {"qpid-dispatch": "qdrouterd.conf", "skupper-router": "skrouterd.conf"}
DIRECTORIES = {"qpid-dispatch": "/etc/qpid-dispatch", "skupper-router": "/etc/skupper-router"}
PROGRAMS = {"qpid-dispatch": ("qdrouterd", "qdrouter.json"), "skupper-router": ("skrouterd", "skrouter.json")}
PASSWORD_FILE = "broker-password"  # noqa: S105 - a file name


def schema_for(programs: Iterable[str], given: Path | None) -> RouterSchema | None:
    """The given schema, or that of the first of these programs that is installed."""
    found = (given, *map(installed_schema, sorted(programs)))
    return next((read_schema(path) for path in found if path is not None), None)


def installed_schema(program: str) -> Path | None:
    """The schema of the router that is installed here."""
    command, file_name = PROGRAMS[program]
    found = shutil.which(command)
    return None if found is None else find_schema(Path(found), file_name)


def router_files(
    program: str, name: str, variables: Variables, access: Access, schema: RouterSchema | None
) -> dict[str, str]:
    values, secret = _with_access(program, variables, access)
    schema = schema or schema_of_variables([values])
    check_variables(schema, name, values)
    return {FILES[program]: fill_router_template(template_of(schema), values), **secret}


def fill_router_template(template: str, variables: Variables) -> str:
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701 - not HTML
    return environment.from_string(template).render(item=variables).strip() + "\n"


def _with_access(program: str, variables: Variables, access: Access) -> tuple[Variables, dict[str, str]]:
    """The connectors to brokers with the user of the network."""
    if not access.user or not any(map(_to_broker, variables.get("connector", ()))):
        return variables, {}
    directory = access.directory or DIRECTORIES[program]
    sign_in = {
        "saslMechanisms": "PLAIN",
        "saslUsername": access.user,
        "saslPassword": f"file:{directory}/{PASSWORD_FILE}",
    }
    connectors = [{**entry, **sign_in} if _to_broker(entry) else entry for entry in variables["connector"]]
    return {**variables, "connector": connectors}, {PASSWORD_FILE: access.password}


def _to_broker(entry: dict[str, Any]) -> bool:
    return entry.get("role") == ROUTE_CONTAINER and "saslUsername" not in entry
