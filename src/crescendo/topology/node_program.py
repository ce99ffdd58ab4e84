"""How does a broker of a network run on its own machine, without the one who deployed it?

`python -m crescendo.topology.node_program FILE` reads what to start from a private file, renders the node's files here,
where its program is installed, and keeps the broker until it is told to end; then nothing of it is left but that file.
`--find PROGRAM` only says whether a program is there, `--install PROGRAM` gets it. A broker that cannot be started or
ends by itself is one sentence on standard error.
"""

import signal
import sys
import time
from pathlib import Path

from crescendo.model.errors import ConfigError, CrescendoError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.instance_dir import remove_instance_dir
from crescendo.systems.registry import system_of
from crescendo.topology.node_order import read_order

NODE_FILE = "node.json"
FIND, INSTALL = "--find", "--install"
_INSTANCE = "instance"
_POLL_S = 0.5


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["--find", program]:
                print(system_of(program).find(None, None).version)
            case ["--install", program]:
                print(system_of(program).install(None, lambda text: print(text, file=sys.stderr)).version)
            case [path]:
                return _keep(Path(path))
            case _:
                print(f"{FIND} PROGRAM, {INSTALL} PROGRAM, or the file of a node", file=sys.stderr)
                return 2
    except CrescendoError as err:
        print(err, file=sys.stderr)
        return 1
    return 0


def _keep(path: Path) -> int:
    """Start the node, and keep it until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        document = path.read_bytes()
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror}") from err
    kind = read_order(document, str(path)).kind
    directory = path.parent / _INSTANCE
    remove_instance_dir(directory)  # of a predecessor that was killed
    instance = start(kind, kind.own_settings(), directory=directory, ports=kind.wanted_ports, on_fork=die_with_parent())
    try:
        while (ended := instance.exit()) is None:
            time.sleep(_POLL_S)
        raise ConfigError(f"{ended.how}; last log lines: {ended.log_lines}")
    finally:
        instance.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
