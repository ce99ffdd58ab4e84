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
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from bench.engines import NO_LIMIT, Child
from bench.results import compare, keep
from crescendo.calibrate.engine_trial import TrialResult, cpu_seconds, send
from crescendo.calibrate.null_servers import NullServer
from crescendo.calibrate.registry import calibrated_protocols, null_server_of
from crescendo.load.assignment import Quota
from crescendo.load.engine.stamped_batch import QUANTUM_NS
from crescendo.load.engine.statistics import Distribution
from crescendo.load.latency_tuning import tune_for_latency
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group, Settle
from crescendo.net.sockets import configure_socket, fill, flush, listen
from crescendo.record.writer import Recorder
from crescendo.run.file_limits import allow_connections

RATE = 20_000
SECONDS = 6
TRIALS = 3
SIZE = 256
WANTED = {10: (1.25, 0.5), 100: (1.4, 0.6), 1000: (1.6, 0.8)}
"""Connections: how many times the CPU of the bare loop, at most, and the 99th percentile of lateness in ms."""

IDLE_CONNECTIONS, IDLE_RATE = 10_000, 500
"""Mostly idle: each sends a message every 20 s."""
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
                    for client in _accept_all(listener):
                        server = None if protocol == BARE else null_server_of(protocol)(SIZE, source=False)
                        clients[client.fileno()] = (client, server)
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


def _accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Those that wait now: one per turn of the loop would take minutes for 10,000."""
    listener.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            yield configure_socket(listener.accept()[0])


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
    quota = Quota(max(int(group.rate * SECONDS), 2), NO_LIMIT)  # of two messages it is known how long they took
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


def _measure(protocol: str, connections: int, rate: float = RATE) -> tuple[TrialResult, float]:
    """The result, and the memory that the sender needed for its connections and messages, in MB."""
    group = Group(
        protocol=calibrated_protocols()[0] if protocol == BARE else protocol,
        size=PayloadSize.fixed(SIZE),
        senders=connections,
        rate=rate / connections,
        settle=Settle.AT_MOST_ONCE,
    )
    with listen() as listener:
        sink = Child(_sink, listener, protocol, connections)
        url = f"{protocol_of(group.protocol).scheme}://127.0.0.1:{listener.getsockname()[1]}"
        result, megabytes = Child(_with_memory, _send_bare if protocol == BARE else _send, url, group).result()
        octets = sink.result()
    assert octets >= result.messages * SIZE, f"{protocol}: {octets} bytes arrived of {result.messages} messages"
    return result, megabytes


def _with_memory(send_all: Callable[[str, Group], TrialResult], url: str, group: Group) -> tuple[TrialResult, float]:
    before = _resident_mb("VmRSS")
    return send_all(url, group), _resident_mb("VmHWM") - before


def _resident_mb(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) / 1024


def _print(protocol: str, connections: int, results: list[TrialResult], times: float | None = None) -> None:
    rate, share, p50_ms, p99_ms = (
        statistics.median(column) for column in zip(*map(_figures, results), strict=True)
    )  # fmt: skip
    against = "" if times is None else f", {times:.2f} times the bare loop's"
    print(
        f"  {protocol:8} {connections:>5} connections   {rate:>10,.1f} msg/s ({rate / RATE - 1:+.3%})   "
        f"lateness p50 {p50_ms:.3f} ms, p99 {p99_ms:.3f} ms   {share:.1%} of a core{against}",
        flush=True,
    )


def _figures(result: TrialResult) -> tuple[float, float, float, float]:
    """Rate, share of a core, and the lateness in ms."""
    rate = result.messages / (result.seconds + 1 / RATE)  # n messages span n intervals
    p50_ns, p99_ns = result.lateness_p50_ns or 0, result.lateness_p99_ns or 0
    return rate, result.cpu_seconds / result.seconds, p50_ns / 1e6, p99_ns / 1e6


def _compare(connections: int, most_cpu: float, most_late_ms: float) -> None:
    """Every protocol and the bare loop, in turns."""
    sides = (BARE, *calibrated_protocols())
    trials = [{side: _measure(side, connections)[0] for side in sides[:: 1 - turn % 2 * 2]} for turn in range(TRIALS)]
    _print("(bare)", connections, [trial[BARE] for trial in trials])
    for protocol in sides[1:]:
        what = f"{protocol}, {RATE:,} msg/s over {connections:,} connections"
        pairs = [(trial[protocol].cpu_us, trial[BARE].cpu_us) for trial in trials]
        found = compare("pacing", what, "µs CPU per message", "a bare loop", pairs, wanted=most_cpu)
        late_ms = statistics.median(_figures(trial[protocol])[3] for trial in trials)
        keep("pacing", f"{what}: p99 lateness", "ms", late_ms, most=most_late_ms)
        _print(protocol, connections, [trial[protocol] for trial in trials], found.ratio)


def _show_idle() -> None:
    result, megabytes = _measure(calibrated_protocols()[0], IDLE_CONNECTIONS, IDLE_RATE)
    share = result.cpu_seconds / result.seconds
    what = f"{IDLE_CONNECTIONS:,} connections that send {IDLE_RATE} msg/s in all"
    keep("pacing", f"{what}: CPU", "% of a core", share * 100)
    keep("pacing", f"{what}: memory", "MB", megabytes)
    print(f"  {what}: {share:.1%} of a core, {megabytes:,.0f} MB")


def main() -> None:
    print(f"{RATE:,} msg/s of {SIZE} B into a null sink, one sender process, every message recorded, {TRIALS} turns")
    allow_connections(IDLE_CONNECTIONS)
    woken_ms = np.percentile(Child(_wake_ups).result(), (50, 99, 99.9)) / 1e6
    print("  an idle process is woken {:.3f} ms late, p99 {:.3f} ms, p99.9 {:.3f} ms".format(*woken_ms), flush=True)
    for connections, (most_cpu, most_late_ms) in WANTED.items():
        _compare(connections, most_cpu, most_late_ms)
        print(f"  wanted: at most {most_cpu} times the bare loop's CPU, p99 {most_late_ms} ms", flush=True)
    _show_idle()


if __name__ == "__main__":
    main()
