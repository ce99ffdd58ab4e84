"""A message queue in memory, and the frames that it speaks: a kind, the length of the body, the body.

A client opens a queue as sender or as receiver. The server counts what it accepted from a sender, and divides messages
among the receivers that have started. Started by `crescendo_toy.system`; imports nothing of Crescendo.
"""

import asyncio
import json
import struct
import sys
from collections import defaultdict, deque

HEAD = struct.Struct(">cI")
COUNT = struct.Struct(">Q")
MAX_BODY_BYTES = 16 * 2**20


class Kind:
    """The kinds of frames."""

    SENDER, RECEIVER, OPENED = b"S", b"R", b"O"  # the body of the first two is the name of a queue
    START, MESSAGE, ACCEPTED = b"G", b"M", b"A"  # the body of ACCEPTED counts the messages of this connection
    ASK, FIGURES, CLOSE = b"?", b"=", b"C"


def frame(kind: bytes, body: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(body)) + body


class Server:
    """All queues."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, deque[bytes]] = defaultdict(deque)
        self._receivers: dict[bytes, deque[asyncio.StreamWriter]] = defaultdict(deque)
        self._accepted = self._delivered = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue, accepted = b"", 0
        try:
            while True:
                kind, length = HEAD.unpack(await reader.readexactly(HEAD.size))
                if length > MAX_BODY_BYTES:
                    break
                body = await reader.readexactly(length)
                match kind:
                    case Kind.SENDER | Kind.RECEIVER:
                        queue = body
                        writer.write(frame(Kind.OPENED))
                    case Kind.START:
                        self._receivers[queue].append(writer)
                        self._deliver(queue)
                    case Kind.MESSAGE:
                        accepted += 1
                        self._accepted += 1
                        self._waiting[queue].append(body)
                        self._deliver(queue)
                        writer.write(frame(Kind.ACCEPTED, COUNT.pack(accepted)))
                    case Kind.ASK:
                        writer.write(frame(Kind.FIGURES, json.dumps(self._figures()).encode()))
                    case _:
                        break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            if writer in self._receivers[queue]:
                self._receivers[queue].remove(writer)
            writer.close()

    def _deliver(self, queue: bytes) -> None:
        waiting, receivers = self._waiting[queue], self._receivers[queue]
        while waiting and receivers:
            receivers[0].write(frame(Kind.MESSAGE, waiting.popleft()))
            receivers.rotate(-1)
            self._delivered += 1

    def _figures(self) -> dict[str, int]:
        waiting = sum(map(len, self._waiting.values()))
        return {"accepted": self._accepted, "delivered": self._delivered, "waiting": waiting}


async def main(port: int) -> None:
    server = await asyncio.start_server(Server().serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
