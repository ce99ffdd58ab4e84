"""How does another process reach the embedded PostgreSQL that runs in a directory?

From the files that the server and its cluster keep there; only their account and root can read them. Starts nothing.
"""

from pathlib import Path
from urllib.parse import quote

from crescendo.mlmq.postgres.cluster import USER
from crescendo.model.errors import ConfigError

_PORT_LINE, _SOCKET_LINE = 3, 4  # of postmaster.pid


def embedded_url(directory: Path, database: str = "postgres") -> str:
    """A URL for asyncpg, with the password. ConfigError unless a server runs there."""
    try:
        lines = (directory / "data" / "postmaster.pid").read_text().splitlines()
        password = (directory / "password").read_text().strip()
        port, socket = int(lines[_PORT_LINE]), lines[_SOCKET_LINE]
    except FileNotFoundError as err:
        raise ConfigError(f"{directory}: no embedded database runs there; start crescendo broker --data on it") from err
    except OSError as err:
        raise ConfigError(f"{directory}: cannot be read: {err.strerror}; use the account of the broker") from err
    except (IndexError, ValueError) as err:
        raise ConfigError(f"{directory}: its database is only just starting; try again") from err
    return f"postgresql://{USER}:{quote(password, safe='')}@/{database}?host={quote(socket, safe='/')}&port={port}"
