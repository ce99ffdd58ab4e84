"""Are paced messages sent when they are due, and what does pacing cost?

One sender process at 20,000 msg/s in all, over few and over many connections, every message recorded, into a null sink
that answers the handshake and then reads every few milliseconds and discards: only the sender is measured, on an
otherwise idle machine. Lateness is the generator's own, as reported in a run; CPU is that of the sender process, its
recording thread included, from the kernel's accounting.

For comparison it shows the limits of the machine: how late an idle process is woken, and a bare loop that sends as many
bytes at the same times over as many connections, wakes as often, and has no protocol, no recording, no control.
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
from crescendo.calibrate.engine_trial import TrialResult, cpu_seconds, send
from crescendo.calibrate.null_servers import NullServer
from crescendo.calibrate.registry import calibrated_protocols, null_server_of
from crescendo.load.assignment import Quota
from crescendo.load.engine.stamped_batch import QUANTUM_NS
from crescendo.load.engine.statistics import Distribution
from crescendo.load.worker import tune_for_latency
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group, Settle
from crescendo.net.sockets import configure_socket, fill, flush, listen
from crescendo.record.writer import Recorder

RATE = 20_000
SECONDS = 30
SIZE = 256
CONNECTIONS = (10, 100)
WANTED = "within 0.1 % of the rate, p50 ≤ 0.2 ms, p99 ≤ 1 ms, ≤ 35 % of a core"
_READ_INTERVAL_S = 0.005
_BUFFER_BYTES = 1 << 20
_HEARTBEAT_S = 3.0
_HEARTBEATS = {
    "amqp10": bytes.fromhex("0000000802000000"),
    "amqp091": bytes.fromhex("08000000000000ce"),
    "stomp": b"\n",
    "mqtt": bytes.fromhex("d000"),  # PINGRESP
    "openwire": bytes.fromhex("000000060a0000000000"),
    "core": bytes.fromhex("000000110a00000000000000000000000000004e20"),
}
BARE = "bare"
_WAKE_UP_TIME_NS = 4 * 10**9
TAG = 99


def _sink(listener: socket.socket, protocol: str, connections: int) -> int:
    """Accept this many connections and read until all are closed; returns the number of bytes."""
    clients: dict[int, tuple[socket.socket, NullServer | None]] = {}
    buffer = bytearray(_BUFFER_BYTES)
    octets = closed = 0
    with select.epoll() as epoll:
        epoll.register(listener, select.EPOLLIN)
        next_heartbeat_s = time.monotonic() + _HEARTBEAT_S
        while closed < connections:
            time.sleep(_READ_INTERVAL_S)
            if time.monotonic() > next_heartbeat_s:
                next_heartbeat_s += _HEARTBEAT_S
                _send_heartbeats(protocol, clients)
            for number, _ in epoll.poll(1):
                if number == listener.fileno():
                    client = configure_socket(listener.accept()[0])
                    clients[client.fileno()] = (
                        client,
                        None if protocol == BARE else null_server_of(protocol)(SIZE, source=False),
                    )
                    epoll.register(client, select.EPOLLIN)
                    continue
                client, server = clients[number]
                taken = _read(client, server, buffer)
                octets += taken or 0
                if taken == 0:
                    epoll.unregister(client)
                    client.close()
                    closed += 1
    return octets


def _send_heartbeats(protocol: str, clients: dict[int, tuple[socket.socket, NullServer | None]]) -> None:
    for client, server in clients.values():
        if server is not None and server.begun and client.fileno() >= 0:
            with contextlib.suppress(OSError):
                client.send(_HEARTBEATS[protocol])


def _read(client: socket.socket, server: NullServer | None, buffer: bytearray) -> int | None:
    """Continue the handshake, or discard what arrived; 0 when the client has disconnected."""
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
    """The least work that sends on time."""
    tune_for_latency()
    port = urlsplit(url).port or 0
    sockets = [configure_socket(socket.create_connection(("127.0.0.1", port))) for _ in range(group.senders)]
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
    """How late an otherwise idle process is woken."""
    tune_for_latency()
    late_ns = []
    end_ns = time.monotonic_ns() + _WAKE_UP_TIME_NS
    while (now_ns := time.monotonic_ns()) < end_ns:
        time.sleep(QUANTUM_NS / 1e9)
        late_ns.append(time.monotonic_ns() - now_ns - QUANTUM_NS)
    return np.array(late_ns)


def _measure(protocol: str, connections: int) -> TrialResult:
    group = Group(
        protocol=calibrated_protocols()[0] if protocol == BARE else protocol,
        size=PayloadSize.fixed(SIZE),
        senders=connections,
        rate=RATE / connections,
        settle=Settle.AT_MOST_ONCE,
    )
    with listen() as listener:
        sink = Child(_sink, listener, protocol, connections)
        url = f"{protocol_of(group.protocol).scheme}://127.0.0.1:{listener.getsockname()[1]}"
        result = Child(_send_bare if protocol == BARE else _send, url, group).result()
        octets = sink.result()
    assert octets >= result.messages * SIZE, f"{protocol}: {octets} bytes arrived of {result.messages} messages"
    return result


def _print(protocol: str, connections: int, result: TrialResult, bare: TrialResult | None) -> None:
    rate = result.messages / (result.seconds + 1 / RATE)  # n messages span n intervals
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
        _print("(bare)", connections, bare, None)
        for protocol in calibrated_protocols():
            _print(protocol, connections, _measure(protocol, connections), bare)
    print(f"  wanted: {WANTED}")


if __name__ == "__main__":
    main()
