"""How much CPU does a message cost, and how fast is it, ours compared with the JMS clients of the vendors?

Through the same broker in the same run: one sender and one receiver process, 256 B, at least once, asynchronous sends,
the same window and the same prefetch, trials that alternate their order. The wide window is the one that our OpenWire
driver has by itself, so there our side runs without one of its own; over AMQP 1.0 the broker's credit is less than it,
and over Core both sides have their own defaults for what a receiver may hold, in bytes.
The JVM of a JMS client is warm when counting begins, and its CPU is counted from there on; that of `artemis perf`,
sender and receiver in one JVM, from the end of its own warm-up on. The result is the median of the trials' ratios.
"""

import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import psutil

from bench.brokers import broker
from bench.engines import FORK, NO_LIMIT, TAG, Child, NullSink, through
from bench.results import compare
from crescendo.calibrate.engine_trial import StopControl, TrialResult
from crescendo.load.assignment import Quota
from crescendo.load.jms.connection_settings import connection_settings
from crescendo.load.jms.jms_engines import await_ready
from crescendo.load.jms.jms_receiver_engine import JmsReceiver, JmsReceiverEngine
from crescendo.load.jms.jms_sender_engine import JmsSender, JmsSenderEngine
from crescendo.load.jms.jvm_child import JvmChild
from crescendo.model.errors import ConfigError
from crescendo.model.pacer import pacer_for
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group, OpenMode, WindowMode
from crescendo.systems.install.jms_clients import jms_command
from crescendo.systems.instance import RunningInstance
from crescendo.systems.registry import system_of

SIZE = 256
NARROW, WIDE = 1000, 65_536
PREFETCH = 4000
TRIALS = 2
OUR_MESSAGES = 200_000
WARM_MESSAGES, THEIR_MESSAGES = 50_000, 100_000
PERF_WARMUP_S, PERF_S = 4, 6
WANTED_CPU, WANTED_RATE = 10.0, 1.0
_DRAIN_NS = 110 * 10**9


class Match(NamedTuple):
    """A JMS client, its protocol, and the system both use."""

    client: str
    protocol: str
    system: str
    window: int = WIDE
    options: str = ""


MATCHES = (
    Match("activemq-client 6.1", "openwire", "activemq", WIDE, f"?prefetch={PREFETCH}&ack=client"),
    Match("activemq-client 6.1", "openwire", "activemq", NARROW, f"?prefetch={PREFETCH}&ack=client"),
    Match("activemq-client 6.1", "openwire", "artemis", WIDE, f"?prefetch={PREFETCH}&ack=client"),
    Match("qpid-jms-client 2.8", "amqp10", "artemis", WIDE, f"?prefetch={PREFETCH}"),
    Match("artemis-jakarta-client 2.44", "core", "artemis"),
)

PERF_MATCHES = (
    Match("artemis perf (AMQP)", "amqp10", "artemis", WIDE, f"?prefetch={PREFETCH}"),
    Match("artemis perf (Core)", "core", "artemis"),
)
PERF_URLS = {
    "amqp10": ("AMQP", f"amqp://{{at}}?jms.prefetchPolicy.all={PREFETCH}"),
    "core": ("CORE", "tcp://{at}?confirmationWindowSize=1048576"),
}
"""Its name for the protocol, and its URL; over Core, sends are asynchronous only with a confirmation window."""


class Cost(NamedTuple):
    """What one side needed for its messages, sender and receiver together."""

    rate: float
    cpu_us: float
    shown: str


class MarkingSink(NullSink):
    """Counts rows of one table, and notes time and CPU when the warm-up is over and when the last one is there."""

    def __init__(self, table: str, total: int, cpu_seconds: Callable[[], float]) -> None:
        self._table, self._total, self._cpu_seconds = table, total, cpu_seconds
        self._marks: list[tuple[int, float, float]] = []
        self.rows = 0

    def append(self, table: str, rows: int, *columns: object) -> None:
        if table != self._table:
            return
        self.rows += rows
        if len(self._marks) < 2 and self.rows >= (self._total if self._marks else WARM_MESSAGES):
            self._marks.append((self.rows, time.monotonic(), self._cpu_seconds()))

    def result(self) -> TrialResult:
        (warm, begun, cpu), (total, ended, all_cpu) = self._marks
        return TrialResult(total - warm, ended - begun, all_cpu - cpu, 0.0, total - warm)


def _group(match: Match, name: str, client: Any = None) -> Group:
    mode = OpenMode() if match.window == WIDE and client is None else WindowMode(match.window)
    return Group(
        protocol=match.protocol, address=f"queue://{name}{match.options}", rate=0, client=client,
        size=PayloadSize.fixed(SIZE), mode=mode,
    )  # fmt: skip


def _ours(url: str, match: Match, name: str) -> Cost:
    sent, received = through(url, _group(match, name), Quota(OUR_MESSAGES, NO_LIMIT))
    assert sent.messages == received.messages, f"{sent.messages:,} sent, {received.messages:,} received"
    return _cost(sent, received)


def _theirs(url: str, match: Match, name: str) -> Cost:
    group, ready, total = _group(match, name, "jms"), FORK.Event(), WARM_MESSAGES + THEIR_MESSAGES
    receiver = Child(_jms_receives, url, group, total, ready)
    while not ready.wait(0.1) and receiver.running:
        pass
    sender = Child(_jms_sends, url, group, total)
    return _cost(sender.result(), receiver.result())


def _cost(sent: TrialResult, received: TrialResult) -> Cost:
    shown = f"send {sent.cpu_us:.2f} + receive {received.cpu_us:.2f}"
    return Cost(min(sent.rate, received.rate), sent.cpu_us + received.cpu_us, shown)


def _jms_sends(url: str, group: Group, total: int) -> TrialResult:
    with _jvm("sender", url, group) as child:
        sink = MarkingSink("sent", total, lambda: time.process_time() + child.cpu_seconds)
        sender = JmsSender(0, group, pacer_for(0), Quota(total, NO_LIMIT))
        JmsSenderEngine([sender], child, sink, StopControl(lambda: False), drain_ns=_DRAIN_NS).run(time.monotonic_ns())
        return sink.result()


def _jms_receives(url: str, group: Group, total: int, ready: Any) -> TrialResult:
    with _jvm("receiver", url, group) as child:
        sink = MarkingSink("received", total, lambda: time.process_time() + child.cpu_seconds)
        control = StopControl(lambda: sink.rows >= total)
        ready.set()
        JmsReceiverEngine([JmsReceiver(0, group)], child, sink, control, tag=TAG).run()
        return sink.result()


@contextlib.contextmanager
def _jvm(role: str, url: str, group: Group) -> Any:
    with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch:
        child = JvmChild(jms_command(), role, TAG, [connection_settings(role, url, group, 0)], Path(scratch) / "jvm")
        await_ready(child)
        try:
            yield child
        finally:
            child.close()


def _artemis_perf(instance: RunningInstance, match: Match, name: str) -> Cost:
    """`artemis perf client`, as many messages pending as our window."""
    endpoint = protocol_of(match.protocol).endpoint
    home, parts = system_of("artemis").find(None, None), urlsplit(instance.endpoints[endpoint])
    protocol, options = PERF_URLS[match.protocol]
    with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch:
        report, arguments = Path(scratch) / "report.json", Path(scratch) / "arguments"
        arguments.touch(mode=0o600)  # keeps the password out of the list of processes
        arguments.write_text(
            "\n".join(
                [
                    f"-Dartemis.home={home.home}", f"-Djava.io.tmpdir={scratch}", "-XX:-UsePerfData", "-classpath",
                    f"{home.home}/lib/artemis-boot.jar", "org.apache.activemq.artemis.boot.Artemis", "perf", "client",
                    f"--protocol={protocol}", f"--url={options.format(at=f'{parts.hostname}:{parts.port}')}",
                    f"--user={unquote(parts.username or '')}", f"--password={unquote(parts.password or '')}",
                    f"--warmup={PERF_WARMUP_S}", f"--duration={PERF_WARMUP_S + PERF_S}",
                    f"--max-pending={match.window}",
                    f"--message-size={SIZE}", f"--json={report}", "--silent", f"queue://{name}",
                ]
            )
        )  # fmt: skip
        with subprocess.Popen([str(home.java), f"@{arguments}"], stdout=subprocess.DEVNULL) as process:
            jvm, used = psutil.Process(process.pid), []
            while process.poll() is None:
                with contextlib.suppress(psutil.Error):
                    times = jvm.cpu_times()
                    used.append((time.time() * 1000, times.user + times.system))
                time.sleep(0.05)
        samples = [sample for sample in json.loads(report.read_text()) if sample["sampleType"] == "interval"]
    warm = [sample for sample in samples if not sample["warmup"]]
    begun_ms, ended_ms = warm[0]["time"], warm[-1]["time"]
    messages = sum(sample["received"] for sample in warm[1:])
    at_ms, cpu_s = np.array(used).T
    cpu = float(np.diff(np.interp([begun_ms, ended_ms], at_ms, cpu_s))[0])
    return Cost(messages / (ended_ms - begun_ms) * 1e3, cpu / messages * 1e6, "send and receive")


def _measure(instance: RunningInstance, match: Match, theirs: Callable[[str], Cost], tag: str) -> None:
    url = instance.endpoints[protocol_of(match.protocol).endpoint]
    pairs: list[tuple[Cost, Cost]] = []
    _ours(url, match, f"bench-{match.protocol}-{match.window}-{tag}-warm")  # brokers in Java are slow at first
    for trial in range(TRIALS):
        name = f"bench-{match.protocol}-{match.window}-{tag}-{trial}"
        sides: list[Callable[[], Cost]] = [
            lambda name=name: _ours(url, match, f"{name}-ours"),  # type: ignore[misc]
            lambda name=name: theirs(f"{name}-theirs"),  # type: ignore[misc]
        ]
        if trial % 2:
            sides.reverse()
        results = [side() for side in sides]
        pairs.append((results[trial % 2], results[1 - trial % 2]))
    for number, side in ((0, "ours"), (1, match.client)):
        cost = sorted((pair[number] for pair in pairs), key=lambda one: one.cpu_us)[len(pairs) // 2]
        print(f"    {side:22} {cost.rate:>10,.0f} msg/s   µs per message: {cost.shown} = {cost.cpu_us:.2f}")
    what = f"{match.protocol} through {match.system}, {SIZE} B, window {match.window:,}"
    costs, rates = (
        [(getattr(ours, name), getattr(theirs, name)) for ours, theirs in pairs] for name in ("cpu_us", "rate")
    )
    compare("jms", what, "µs CPU per message", match.client, costs, wanted=1 / WANTED_CPU)
    compare("jms", what, "msg/s", match.client, rates, wanted=WANTED_RATE, less_is_better=False)
    cpu = statistics.median(theirs.cpu_us / ours.cpu_us for ours, theirs in pairs)
    rate = statistics.median(ours.rate / theirs.rate for ours, theirs in pairs)
    print(f"    CPU theirs ÷ ours = {cpu:.1f}×, wanted {WANTED_CPU:g}×; rate ours ÷ theirs = {rate:.2f}×, wanted "
          f"{WANTED_RATE:g}×", flush=True)  # fmt: skip


def main() -> None:
    print(f"{SIZE} B, at least once, prefetch {PREFETCH}, one sender and one receiver, {TRIALS} trials")
    for system in dict.fromkeys(match.system for match in MATCHES):
        try:
            with broker(system) as instance:
                for match in (one for one in MATCHES if one.system == system):
                    print(
                        f"  {match.client} against ours, {match.protocol} through {system}, window {match.window:,}",
                        flush=True,
                    )
                    url = instance.endpoints[protocol_of(match.protocol).endpoint]
                    _measure(instance, match, lambda name, m=match, u=url: _theirs(u, m, name), "jms")  # type: ignore[misc]
                if system == "artemis":
                    for perf in PERF_MATCHES:
                        print(f"  {perf.client} against ours, through {system}", flush=True)
                        _measure(instance, perf, lambda name, m=perf: _artemis_perf(instance, m, name), "perf")  # type: ignore[misc]
        except ConfigError as err:
            print(f"    not measured: {err}")


if __name__ == "__main__":
    main()
