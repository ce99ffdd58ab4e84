"""Which protocols can be calibrated, and with which null server?"""

from pkgutil import resolve_name
from typing import cast

from crescendo.calibrate.null_servers import MakeNullServer
from crescendo.model.protocols import known_protocols, protocol_of


def calibrated_protocols() -> list[str]:
    """The names of the protocols that have a null server."""
    return [name for name, protocol in known_protocols().items() if protocol.null_server is not None]


def null_server_of(protocol: str) -> MakeNullServer:
    """The null server of a protocol that has one."""
    return cast(MakeNullServer, resolve_name(protocol_of(protocol).null_server or ""))
