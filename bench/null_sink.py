"""How fast can one sender process send when nobody holds it back?

The sink speaks just enough AMQP 1.0 to grant unlimited credit, then counts bytes and divides by the size of a frame.
"""

import socket
import threading
from typing import Any

from bench.engines import FORK, PATIENCE_S, Effort, send
from crescendo.load.assignment import Quota
from crescendo.model.units import Size
from crescendo.model.workload import Group, Settle
from crescendo.net.sockets import listen
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.connection import WINDOW, Connection
from crescendo.wire.amqp10.events import Attached, Deliveries

SECONDS = 4
SIZE = 256


class NullSink(threading.Thread):
    """Takes everything from one connection."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(daemon=True)
        self._listener = listener
        self.octets = 0
        self.early = 0  # messages decoded while the handshake was still being read

    def run(self) -> None:
        client, _ = self._listener.accept()
        connection = Connection(container_id="null-sink", server=True)
        attached = False
        while not attached:
            connection.received(client.recv_into(connection.receive_buffer()))
            while (event := connection.next_event()) is not None:
                if isinstance(event, Attached):
                    connection.accept_attach(event.handle, event.attach)
                    connection.grant(event.handle, WINDOW)
                    attached = True
                elif isinstance(event, Deliveries):
                    self.early += len(event.ids)
            while connection.outgoing:
                client.sendall(connection.outgoing.popleft())
        buffer = bytearray(1 << 20)
        while count := client.recv_into(buffer):
            self.octets += count


def serve(port_pipe: Any, results: Any) -> None:
    listener = listen()
    sink = NullSink(listener)
    sink.start()
    port_pipe.send(listener.getsockname()[1])
    sink.join()
    results.put((sink.octets, sink.early))


def main() -> None:
    group = Group(size=Size(SIZE), rate=0, settle=Settle.AT_MOST_ONCE)
    frame = TransferBatch(handle=0, body_length=SIZE, settled=True).frame_length
    ours, theirs = FORK.Pipe()
    taken: Any = FORK.Queue()
    sink = FORK.Process(target=serve, args=(theirs, taken))
    sink.start()
    url = f"amqp://127.0.0.1:{ours.recv()}"
    sent: Any = FORK.Queue()
    sender = FORK.Process(target=send, args=(url, group, Quota(2**62, SECONDS * 10**9), None, True, sent))
    sender.start()
    effort: Effort = sent.get(timeout=PATIENCE_S)
    sender.join()
    octets, early = taken.get(timeout=PATIENCE_S)
    sink.join()
    messages = early + octets // frame
    print(f"{SIZE} B presettled into a null sink, one sender process, {SECONDS} s")
    print(
        f"  sent            {effort.messages:,} messages, {effort.rate / 1e6:.2f} M msg/s, "
        f"{effort.cpu_us:.3f} µs CPU each"
    )
    print(f"  counted by sink {messages:,} messages ({octets:,} bytes of {frame} a frame, less the closing frames)")
    print(f"  batch path      {effort.batch_share:.1%} of the messages")
    assert messages in {effort.messages, effort.messages + 1}, "the sink counted something else than was sent"


if __name__ == "__main__":
    main()
