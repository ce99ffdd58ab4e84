"""Do paced messages leave when they are due, and what does the waiting cost?

One sender process at 20,000 msg/s in all, over few and over many connections, every message recorded, into a null sink
that answers the handshake and then reads every few milliseconds and throws away: what is measured is the sender, and
the machine is otherwise idle. Lateness is the generator's own, as it is reported in a run; CPU is the sender process,
its recording thread included, from the kernel's accounting.

Beside it stands what the machine itself allows: how late an idle process is woken, and a bare loop that sends as many
bytes at the same times over as many connections, comes back as often, and knows no protocol, no recording, no control.
"""

import contextlib
import select
import socket
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from bench.engines import NO_LIMIT, Child
from crescendo.calibrate.engine import TrialResult, cpu_seconds, send
from crescendo.calibrate.null_servers import NULL_SERVERS, NullServer
from crescendo.load.assignment import Quota
from crescendo.load.engine.sender_engine import QUANTUM_NS
from crescendo.load.engine.statistics import Distribution
from crescendo.load.worker import tune_for_latency
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import PROTOCOLS, Group, Settle
from crescendo.net.sockets import fill, flush, listen, prepared
from crescendo.record.writer import Recorder

RATE = 20_000
SECONDS = 30
SIZE = 256
CONNECTIONS = (10, 100)
WANTED = "within 0.1 % of the rate, p50 ≤ 0.2 ms, p99 ≤ 1 ms, ≤ 35 % of a core"
_NAP_S = 0.005
_BUFFER_BYTES = 1 << 20
_BEAT_S = 3.0
_SIGNS_OF_LIFE = {
    "amqp10": bytes.fromhex("0000000802000000"),
    "amqp091": bytes.fromhex("08000000000000ce"),
    "stomp": b"\n",
    "mqtt": bytes.fromhex("d000"),  # the answer to a ping
}
BARE = "bare"
_WAKE_UPS_NS = 4 * 10**9
TAG = 99


def _sink(listener: socket.socket, protocol: str, connections: int) -> int:
    """Take so many connections and what they send until all are gone; how many bytes that was."""
    clients: dict[int, tuple[socket.socket, NullServer | None]] = {}
    buffer = bytearray(_BUFFER_BYTES)
    octets = left = 0
    with select.epoll() as epoll:
        epoll.register(listener, select.EPOLLIN)
        next_beat_s = time.monotonic() + _BEAT_S
        while left < connections:
            time.sleep(_NAP_S)
            if time.monotonic() > next_beat_s:
                next_beat_s += _BEAT_S
                _give_sign_of_life(protocol, clients)
            for number, _ in epoll.poll(1):
                if number == listener.fileno():
                    client = prepared(listener.accept()[0])
                    clients[client.fileno()] = (
                        client,
                        None if protocol == BARE else NULL_SERVERS[protocol](SIZE, source=False),
                    )
                    epoll.register(client, select.EPOLLIN)
                    continue
                client, server = clients[number]
                taken = _take(client, server, buffer)
                octets += taken or 0
                if taken == 0:
                    epoll.unregister(client)
                    client.close()
                    left += 1
    return octets


def _give_sign_of_life(protocol: str, clients: dict[int, tuple[socket.socket, NullServer | None]]) -> None:
    for client, server in clients.values():
        if server is not None and server.begun and client.fileno() >= 0:
            with contextlib.suppress(OSError):
                client.send(_SIGNS_OF_LIFE[protocol])


def _take(client: socket.socket, server: NullServer | None, buffer: bytearray) -> int | None:
    """Shake hands, or throw away; 0 when the client has left."""
    if server is None or server.begun:
        try:
            return client.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError:
            return 0
    taken = fill(client, server.receive_buffer())
    if taken:
        server.received(taken)
        flush(client, server.outgoing)
    return taken


def _send(url: str, group: Group) -> TrialResult:
    tune_for_latency()
    quota = Quota(int(group.rate * SECONDS), NO_LIMIT)
    with (
        tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch,
        contextlib.closing(Recorder(Path(scratch), "sender-0")) as recorder,
    ):
        return send(url, group, quota, tag=TAG, log=recorder)


def _send_bare(url: str, group: Group) -> TrialResult:
    """As little as it takes to be on time."""
    tune_for_latency()
    port = urlsplit(url).port or 0
    sockets = [prepared(socket.create_connection(("127.0.0.1", port))) for _ in range(group.senders)]
    content, total, gap_ns = bytes(SIZE), RATE * SECONDS, 10**9 // RATE
    lateness = Distribution()
    cpu, begun_ns = cpu_seconds(), time.monotonic_ns()
    sent, due_ns = 0, begun_ns
    while sent < total:
        now_ns = time.monotonic_ns()
        while due_ns <= now_ns and sent < total:
            sockets[sent % len(sockets)].send(content)
            lateness.add_one(time.monotonic_ns() - due_ns)
            sent, due_ns = sent + 1, due_ns + gap_ns
        time.sleep(max(max(due_ns, now_ns + QUANTUM_NS) - time.monotonic_ns(), 0) / 1e9)
    seconds, cpu = (time.monotonic_ns() - begun_ns) / 1e9, cpu_seconds() - cpu
    for one in sockets:
        one.close()
    return TrialResult(sent, seconds, cpu, 0.0, sent, lateness.overall(50), lateness.overall(99))


def _wake_ups() -> npt.NDArray[np.int64]:
    """How late a process is woken that has nothing else to do."""
    tune_for_latency()
    late_ns = []
    end_ns = time.monotonic_ns() + _WAKE_UPS_NS
    while (now_ns := time.monotonic_ns()) < end_ns:
        time.sleep(QUANTUM_NS / 1e9)
        late_ns.append(time.monotonic_ns() - now_ns - QUANTUM_NS)
    return np.array(late_ns)


def _measure(protocol: str, connections: int) -> TrialResult:
    group = Group(
        protocol=next(iter(NULL_SERVERS)) if protocol == BARE else protocol,
        size=PayloadSize.fixed(SIZE),
        senders=connections,
        rate=RATE / connections,
        settle=Settle.AT_MOST_ONCE,
    )
    with listen() as listener:
        sink = Child(_sink, listener, protocol, connections)
        url = f"{PROTOCOLS[group.protocol]}://127.0.0.1:{listener.getsockname()[1]}"
        result = Child(_send_bare if protocol == BARE else _send, url, group).result()
        octets = sink.result()
    assert octets >= result.messages * SIZE, f"{protocol}: {octets} bytes arrived of {result.messages} messages"
    return result


def _tell(protocol: str, connections: int, result: TrialResult, bare: TrialResult | None) -> None:
    rate = result.messages / (result.seconds + 1 / RATE)  # the last message stands for the time up to the next one
    share = result.cpu_seconds / result.seconds
    p50_ms, p99_ms = ((late_ns or 0) / 1e6 for late_ns in (result.lateness_p50_ns, result.lateness_p99_ns))
    times = "" if bare is None else f", {share / (bare.cpu_seconds / bare.seconds):.1f} times the bare loop's"
    print(
        f"  {protocol:8} {connections:>4} connections   {rate:>10,.1f} msg/s ({rate / RATE - 1:+.3%})   "
        f"lateness p50 {p50_ms:.3f} ms, p99 {p99_ms:.3f} ms   "
        f"{share:.1%} of a core{times}",
        flush=True,
    )


def main() -> None:
    print(f"{RATE:,} msg/s of {SIZE} B into a null sink, one sender process, {SECONDS} s each, every message recorded")
    woken_ms = np.percentile(Child(_wake_ups).result(), (50, 99, 99.9)) / 1e6
    print("  an idle process is woken {:.3f} ms late, p99 {:.3f} ms, p99.9 {:.3f} ms".format(*woken_ms), flush=True)
    for connections in CONNECTIONS:
        bare = _measure(BARE, connections)
        _tell("(bare)", connections, bare, None)
        for protocol in NULL_SERVERS:
            _tell(protocol, connections, _measure(protocol, connections), bare)
    print(f"  wanted: {WANTED}")


if __name__ == "__main__":
    main()
