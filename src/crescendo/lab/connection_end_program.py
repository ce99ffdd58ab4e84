"""How do the connections of a host end when its address is gone?

Mobile systems end them at once, with an error for the programs that use them (SOCK_DESTROY of the kernel's socket
diagnosis); other systems leave them until TCP gives up. This program does the former, as
`python -I -S connection_end_program.py ADDRESS`, on the host: it ends every TCP connection from this IPv4 address and
prints how many there were. Imports nothing of Crescendo.
"""

import os
import socket
import struct
import sys

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY, _SOCK_DESTROY = 20, 21
_REQUEST, _ACK, _DUMP = 0x01, 0x04, 0x300
_DONE, _ERROR = 3, 2
_CONNECTED_STATES = 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x100 | 0x200  # all but TIME_WAIT, CLOSE and LISTEN
_HEADER = struct.Struct("=IHHII")
_REQUEST_HEAD = struct.Struct("=BBBBI")
_SOCKET_ID_BYTES = 48
_SOURCE_AT = 4  # in the socket id, after two ports


def main() -> None:
    source = socket.inet_aton(sys.argv[1])
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.bind((0, 0))
        found = [one for one in _sockets(netlink) if one[_SOURCE_AT : _SOURCE_AT + 4] == source]
        for one in found:
            _ask(netlink, _SOCK_DESTROY, _REQUEST | _ACK, _CONNECTED_STATES, one)
            for kind, payload in _answers(netlink):
                error = -struct.unpack_from("=i", payload)[0] if kind == _ERROR else 0
                if error and error != 2:  # it may have ended meanwhile
                    sys.exit(os.strerror(error))
                break
    print(len(found), flush=True)


def _sockets(netlink: socket.socket) -> list[bytes]:
    """The identifications of all connected sockets."""
    _ask(netlink, _SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, _CONNECTED_STATES, b"\0" * _SOCKET_ID_BYTES)
    found = []
    for kind, payload in _answers(netlink):
        if kind == _DONE:
            break
        if kind == _ERROR:
            sys.exit(os.strerror(-struct.unpack_from("=i", payload)[0]))
        found.append(payload[4 : 4 + _SOCKET_ID_BYTES])
    return found


def _ask(netlink: socket.socket, kind: int, flags: int, states: int, socket_id: bytes) -> None:
    request = _REQUEST_HEAD.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, states) + socket_id
    netlink.send(_HEADER.pack(_HEADER.size + len(request), kind, flags, 1, 0) + request)


def _answers(netlink: socket.socket):  # type: ignore[no-untyped-def] # annotations would need an import
    while True:
        data = netlink.recv(65536)
        while data:
            length, kind, _, _, _ = _HEADER.unpack_from(data)
            yield kind, data[_HEADER.size : length]
            data = data[(length + 3) & ~3 :]


if __name__ == "__main__":
    main()
