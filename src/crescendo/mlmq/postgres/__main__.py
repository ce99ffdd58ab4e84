"""How does the embedded PostgreSQL run alone, as one process of a system?

`python -m crescendo.mlmq.postgres PLAN`, as systems start it whose nodes share a database. It serves until a stop
signal, and dies with its parent. Not a CLI command, and creates no tables.
"""

import signal
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.mlmq.postgres.embedded_server import start
from crescendo.mlmq.postgres.unprivileged_data import reachable_data
from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.processes.die_with_parent import die_with_parent

_POLL_S = 0.05


class DatabasePlan(Struct, frozen=True, forbid_unknown_fields=True):
    """What to start."""

    data: str  # its directory
    outside_dir_file: str  # names the directory for its data when its account cannot reach `data`
    port: int
    password: str


def serve(plan: DatabasePlan) -> None:
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopping.append(number))
    directory = reachable_data(Path(plan.data), plan.outside_dir_file)
    server = start(directory, port=plan.port, on_fork=die_with_parent(), password=plan.password)
    try:
        while not stopping:
            time.sleep(_POLL_S)
            if not server.is_alive:
                raise LostError("the embedded PostgreSQL has ended")
    finally:
        server.stop()


def main() -> int:
    try:
        serve(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=DatabasePlan))
    except (OSError, msgspec.MsgspecError) as err:
        print(ConfigError(f"{sys.argv[1]}: is not a valid plan: {err}"), file=sys.stderr)
        return 2
    except CrescendoError as err:
        print(err, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
