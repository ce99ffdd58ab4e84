"""How does this process get a socket that listens on a host of the lab?

A socket belongs to the network where it was made, whichever process uses it. This program, as
`python -I -S listener_program.py PORT`, runs on the host, listens on its loopback interface and sends the socket over
its standard input, which is a socket too. Accepts nothing. Imports nothing of Crescendo.
"""

import socket
import sys


def main() -> None:
    owner = socket.socket(fileno=0)
    try:
        listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1024)
    except OSError as err:
        owner.send((err.strerror or str(err)).encode())
        return
    socket.send_fds(owner, [b"ok"], [listener.fileno()])


if __name__ == "__main__":
    main()
