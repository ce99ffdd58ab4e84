"""What does the control plane cost, and does it carry hundreds of peers?

Light peers in one process join a run, answer a PING to all of them, and leave; on the embedded broker and on Mosquitto,
in one run. The cost of authentication is the time to sign and to check a report, beside the time to encode and decode
it. The CPU of one report, network thread included, is set against the CPU that a sender needs for one second at 20,000
msg/s, and beside the CPU that each broker needs to deliver it.
"""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench import pacing_bench
from crescendo.control.bus import Bus
from crescendo.control.embedded_broker import EmbeddedBroker
from crescendo.control.notes import Command, Note, NoteKind, Statistics, decode_note, encode_note
from crescendo.control.peer import CONDUCTOR, Peer, identity_of_this_process
from crescendo.control.request_payloads import Ping
from crescendo.control.topics import Topics
from crescendo.control.trust import NoteScope, new_lab, new_run_name
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

PEERS = 200
DIALLING_AT_ONCE = 20
REPORTS = 2000
SENDING_SECONDS = 10
TIMEOUT_S = 120
STATISTICS = Statistics(1, {"queue://perf": 10**6}, 10**6, 2e4, 10**6, 0.3, PeerStatistics(busy_share=0.3))


def main() -> None:
    for name in ("embedded broker", "mosquitto"):
        with _broker(name) as url:
            _measure_peers(name, url)
            _measure_delivery(name, url)
    _measure_authentication()
    with _broker("mosquitto") as url:
        _measure_report(url)


@contextmanager
def _broker(name: str) -> Iterator[str]:
    if name == "embedded broker":
        with EmbeddedBroker(on_fork=die_with_parent()) as broker:
            yield broker.url
        return
    with tempfile.TemporaryDirectory() as directory:
        instance = start(system_of(name), {}, directory=Path(directory) / "it", on_fork=die_with_parent())
        try:
            yield instance.url
        finally:
            instance.stop()


def _new_run() -> NoteScope:
    return new_lab().scope_of(new_run_name())


def _measure_peers(name: str, url: str) -> None:
    run = _new_run()
    topics = Topics(run.name)
    conductor = identity_of_this_process(CONDUCTOR, CONDUCTOR)
    bus = Bus(url, run, conductor, (topics.replies, topics.notifications))
    bus.connect()
    begun = time.monotonic()
    peers = [Peer(url, run, identity_of_this_process(f"sender-{n}", "sender")) for n in range(PEERS)]
    with ThreadPoolExecutor(DIALLING_AT_ONCE) as pool:
        list(pool.map(lambda peer: peer.join(TIMEOUT_S), peers))
    _receive(bus, Command.GROUP_JOIN)
    barrier_s = time.monotonic() - begun
    begun = time.monotonic()
    bus.publish(topics.peers, Note(NoteKind.REQUEST, Command.PING, 1, conductor, Ping(1, 0).to_payload()), qos=1)
    _receive(bus, Command.PING, peers)
    ping_s = time.monotonic() - begun
    begun = time.monotonic()
    with ThreadPoolExecutor(DIALLING_AT_ONCE) as pool:
        list(pool.map(lambda peer: peer.close(), peers))
    _receive(bus, Command.GROUP_LEAVE)
    left_s = time.monotonic() - begun
    bus.close()
    print(
        f"{name}: {PEERS} peers joined in {barrier_s:.2f} s, answered a ping in {ping_s * 1e3:.0f} ms "
        f"({2 * PEERS / ping_s:,.0f} notes/s delivered), left in {left_s:.2f} s; dropped: {dict(bus.dropped)}"
    )


def _receive(bus: Bus, command: Command, pumped: list[Peer] | None = None) -> None:
    """Wait until every peer has sent this."""
    seen: set[str] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(seen) < PEERS:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(seen)} of {PEERS} sent {command.name}")
        for peer in pumped or ():
            peer.next_request(0.0)
        while (note := bus.next(0.0 if pumped else 0.1)) is not None:
            if isinstance(note, Note) and note.command is command:
                seen.add(note.sender.id)


def _measure_delivery(name: str, url: str) -> None:
    run = _new_run()
    bus = Bus(url, run, identity_of_this_process(CONDUCTOR, CONDUCTOR), (Topics(run.name).notifications,))
    bus.connect()
    peer = Peer(url, run, identity_of_this_process("sender-0", "sender"))
    peer.join()
    begun_s, received = _cpu_of_children_s(), 0
    for _ in range(REPORTS):
        peer.report(STATISTICS)
        received += bus.next(1.0) is not None
    each_us = (_cpu_of_children_s() - begun_s) / received * 1e6
    print(f"{name}: {each_us:.0f} µs of its CPU per report, {received} of {REPORTS} delivered")
    peer.close()
    bus.close()


def _cpu_of_children_s() -> float:
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return sum(each.user + each.system for each in times)


def _measure_authentication() -> None:
    run = _new_run()
    topic = Topics(run.name).notifications
    sender = identity_of_this_process("sender-0", "sender")
    note = Note(NoteKind.NOTIFICATION, Command.STATS, 0, sender, STATISTICS.to_payload())
    body = encode_note(note, 1)
    tag = run.tag(topic, body)

    def each(action: object) -> float:
        begun = time.process_time_ns()
        for _ in range(20_000):
            action()  # type: ignore[operator]
        return (time.process_time_ns() - begun) / 20_000 / 1000

    coded_us = each(lambda: encode_note(note, 1)) + each(lambda: decode_note(body))
    signed_us = each(lambda: run.tag(topic, body)) + each(lambda: run.is_authentic(topic, body, tag))
    print(
        f"authentication of a report of {len(body)} bytes: {signed_us:.1f} µs to sign and to check, "
        f"{signed_us / coded_us:.2f} of the {coded_us:.1f} µs to encode and decode it"
    )


def _measure_report(url: str) -> None:
    peer = Peer(url, _new_run(), identity_of_this_process("sender-0", "sender"))
    peer.join()
    begun = time.process_time()
    for _ in range(REPORTS):
        peer.report(STATISTICS)
        time.sleep(0.001)  # one at a time, as in a run
    report_s = (time.process_time() - begun) / REPORTS
    peer.close()
    pacing_bench.SECONDS = SENDING_SECONDS
    sent, _ = pacing_bench._measure("amqp10", 10)
    second_s = sent.cpu_seconds / sent.seconds
    print(
        f"CPU of one report {report_s * 1e6:.0f} µs, of one second of sending at {pacing_bench.RATE:,} msg/s "
        f"{second_s * 1e3:.0f} ms: {report_s / second_s * 100:.2f} % (wanted: under 1 %)"
    )
