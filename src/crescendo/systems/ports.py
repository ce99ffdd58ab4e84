"""On which ports of this machine may an instance listen?

Free ports of the loopback interface, or of another address, below the kernel's range of ephemeral ports, so that no
outgoing connection takes one between our check and the system's bind. Reserves nothing.
"""

import contextlib
import errno
import os
import secrets
import socket
from collections.abc import Mapping, Sequence

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.systems.base import LOOPBACK_ADDRESS

HOST = LOOPBACK_ADDRESS
_FIRST, _LAST = 12_000, 32_000
_ATTEMPTS = 1_000


def choose_ports(names: Sequence[str], wanted: Mapping[str, int], host: str = HOST) -> dict[str, int]:
    """A port of this address for every name: the requested one where there is one, otherwise any free port."""
    _check_host(host)
    for name in wanted:
        if name not in names:
            raise ConfigError(f"port {name}={wanted[name]}: there is no port of that name; {listing(name, names)}")
    with contextlib.ExitStack() as held:  # held until all are chosen, so that no two are the same
        chosen = {name: _take(name, wanted[name], host, held) for name in names if name in wanted}
        return {name: chosen[name] if name in chosen else _any_free(host, held) for name in names}


def _check_host(host: str) -> None:
    with contextlib.ExitStack() as held:
        try:
            _bind(host, 0, held)
        except OSError as err:
            raise ConfigError(f"{host}: nothing can listen there: {os.strerror(err.errno or 0)}") from err


def accepts(port: int, host: str = HOST, timeout_s: float = 0.2) -> bool:
    """Whether a process listens on that port of this address."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False


def _take(name: str, port: int, host: str, held: contextlib.ExitStack) -> int:
    if not 1 <= port <= 65_535:
        raise ConfigError(f"port {name}={port}: a port is a number from 1 to 65535")
    try:
        _bind(host, port, held)
    except OSError as err:
        cure = "give another, or none to get a free one"
        if err.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {name}={port}: another program has it on {host}; {cure}") from err
        raise ConfigError(f"port {name}={port}: {os.strerror(err.errno or 0)}; {cure}") from err
    return port


def _any_free(host: str, held: contextlib.ExitStack) -> int:
    for _ in range(_ATTEMPTS):
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        with contextlib.suppress(OSError):
            _bind(host, port, held)
            return port
    raise ConfigError(f"no port between {_FIRST} and {_LAST} is free on {host}; stop some programs that listen there")


def _bind(host: str, port: int, held: contextlib.ExitStack) -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # As servers do: connections of a former server in TIME_WAIT do not block the port, a listener does.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)  # two sockets may share a bound port, but not a listening one
    except OSError:
        listener.close()
        raise
    held.callback(listener.close)
