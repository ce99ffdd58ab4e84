"""What does a message cost when messages come a few at a time?

Large batches share the cost of a call among many messages; windows of 1 to 100 leave little to share. Every protocol
that acknowledges one by one is measured with such windows, ours against the usual Python client of that protocol, with
the same window, prefetch and acknowledgements, in turns. CPU is that of the two client processes.
"""

from typing import NamedTuple

from bench import foreign
from bench.brokers import broker
from bench.engines import NO_LIMIT, through
from bench.results import compare
from crescendo.calibrate.engine_trial import TrialResult
from crescendo.load.assignment import Quota
from crescendo.model.errors import ConfigError
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group, Settle, WindowMode
from crescendo.systems.instance import RunningInstance

SIZE = 256
TRIALS = 2
OUR_MESSAGES = {1: 2_000, 8: 8_000, 10: 8_000, 64: 30_000, 100: 30_000}
THEIR_MESSAGES = {1: 500, 8: 1_500, 10: 1_500, 64: 3_000, 100: 3_000}
WANTED = 1.0


class Match(NamedTuple):
    """How messages are acknowledged, and the client that does the same."""

    what: str
    protocol: str
    system: str
    client: str
    windows: tuple[int, ...]
    options: str = ""
    settle: Settle = Settle.AT_LEAST_ONCE


MATCHES = (
    Match("AMQP 1.0, small credit", "amqp10", "loopback", "python-qpid-proton", (1, 8, 64)),
    Match("MQTT QoS 1", "mqtt", "mosquitto", "paho-mqtt", (1, 10, 100)),
    Match("MQTT QoS 2", "mqtt", "mosquitto", "paho-mqtt", (1, 10, 100), settle=Settle.EXACTLY_ONCE),
    Match("STOMP client-individual", "stomp", "activemq", "stomp.py", (1, 10, 100), "&ack=client-individual"),
    Match("0-9-1, individual", "amqp091", "rabbitmq", "pika", (1, 10, 100), "&ack=individual"),
)
Pair = tuple[TrialResult, TrialResult]


def _ours(url: str, match: Match, window: int, name: str) -> Pair:
    # Without limits of its own, Mosquitto does not keep to the one of a receiver; the sender's window holds for both.
    where = f"topic://{name}" if match.protocol == "mqtt" else f"queue://{name}?prefetch={window}{match.options}"
    group = Group(
        protocol=match.protocol, address=where, rate=0,
        size=PayloadSize.fixed(SIZE), mode=WindowMode(window), settle=match.settle,
    )  # fmt: skip
    pair = through(url, group, Quota(OUR_MESSAGES[window], NO_LIMIT))
    assert pair[0].messages == pair[1].messages, f"{pair[0].messages:,} sent, {pair[1].messages:,} received"
    return pair


def _theirs(url: str, match: Match, window: int, name: str) -> Pair:
    qos = 2 if match.settle is Settle.EXACTLY_ONCE else 1
    return foreign.through(
        match.protocol,
        foreign.Job(url, name, THEIR_MESSAGES[window], SIZE, window, prefetch=window, ack_every=1, qos=qos),
    )


def _cost(pair: Pair) -> float:
    return pair[0].cpu_us + pair[1].cpu_us


def _measure(instance: RunningInstance, match: Match, window: int) -> None:
    url, pairs = instance.endpoints[protocol_of(match.protocol).endpoint], []
    for trial in range(TRIALS + 1):
        names = [f"bench-{match.what.replace(' ', '-').replace(',', '')}-{window}-{trial}-{side}" for side in (0, 1)]
        if trial % 2:
            theirs = _theirs(url, match, window, names[1])
            pairs.append((_ours(url, match, window, names[0]), theirs))
        else:
            pairs.append((_ours(url, match, window, names[0]), _theirs(url, match, window, names[1])))
    costs = [(_cost(ours), _cost(theirs)) for ours, theirs in pairs[1:]]  # the first trial warms the broker up
    what = f"{match.what} through {match.system}, {SIZE} B, window {window}"
    found = compare("batches", what, "µs CPU per message", match.client, costs, wanted=WANTED)
    sent, received = pairs[-1][0]
    print(
        f"  {what}: ours {found.ours:.1f} µs ({sent.run_length:.1f} messages a write, {received.run_length:.1f} "
        f"a read), {match.client} {found.theirs:.1f} µs, ours ÷ theirs {found.ratio:.2f}",
        flush=True,
    )


def main() -> None:
    print(f"{SIZE} B, acknowledged one by one, one sender and one receiver process, {TRIALS} trials each")
    for match in MATCHES:
        try:
            with broker(match.system) as instance:
                for window in match.windows:
                    _measure(instance, match, window)
        except ConfigError as err:
            print(f"  {match.what}: not measured: {err}")


if __name__ == "__main__":
    main()
