"""How much CPU does a message cost the client, ours compared with the usual Python client of each protocol?

Both send through the same broker and receive from it, one sender and one receiver process, settled in the same way, in
trials that alternate their order, after a warm-up trial: brokers in Java are slow at first. CPU is what the kernel
charged to the two client processes, send and receive summed; the result is the median of the trials' ratios.
"""

import statistics
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
from crescendo.model.workload import Group

SIZE = 256
TRIALS = 3
OUR_MESSAGES = 200_000
THEIR_MESSAGES = 20_000


class Match(NamedTuple):
    """A foreign client, the system both use, and how many times less CPU ours should take."""

    client: str
    protocol: str
    system: str
    wanted: float


MATCHES = (
    Match("python-qpid-proton", "amqp10", "loopback", 40),
    Match("python-qpid-proton", "amqp10", "qpid-broker-j", 40),
    Match("python-qpid-proton", "amqp10", "artemis", 40),
    Match("pika", "amqp091", "rabbitmq", 10),
    Match("paho-mqtt", "mqtt", "mosquitto", 10),
    Match("stomp.py", "stomp", "rabbitmq", 2.5),
    Match("stomp.py", "stomp", "activemq", 8),
    Match("stomp.py", "stomp", "artemis", 8),
)
Pair = tuple[TrialResult, TrialResult]


def _ours(url: str, protocol: str, name: str) -> Pair:
    scheme = "topic" if protocol == "mqtt" else "queue"
    group = Group(protocol=protocol, address=f"{scheme}://{name}", size=PayloadSize.fixed(SIZE), rate=0)
    return through(url, group, Quota(OUR_MESSAGES, NO_LIMIT))


def _theirs(url: str, protocol: str, name: str) -> Pair:
    return foreign.through(protocol, foreign.Job(url, name, THEIR_MESSAGES, SIZE))


def _cost(pair: Pair) -> float:
    return pair[0].cpu_us + pair[1].cpu_us


def _measure_match(match: Match) -> list[tuple[Pair, Pair]]:
    names = tuple(f"bench-{side}-{trial}" for side in ("ours", "theirs") for trial in range(TRIALS + 1))
    trials: list[tuple[Pair, Pair]] = []
    with broker(match.system, names) as instance:
        url = instance.endpoints[protocol_of(match.protocol).endpoint]
        for trial in range(TRIALS + 1):
            ours_name, theirs_name = f"bench-ours-{trial}", f"bench-theirs-{trial}"
            if trial % 2:
                theirs = _theirs(url, match.protocol, theirs_name)
                ours = _ours(url, match.protocol, ours_name)
            else:
                ours = _ours(url, match.protocol, ours_name)
                theirs = _theirs(url, match.protocol, theirs_name)
            assert ours[0].messages == ours[1].messages, f"{ours[0].messages:,} sent, {ours[1].messages:,} received"
            trials.append((ours, theirs))
    return trials[1:]


def _show(match: Match) -> None:
    print(f"  {match.client} against ours, {match.protocol} through {match.system}", flush=True)
    try:
        trials = _measure_match(match)
    except ConfigError as err:
        print(f"    not measured: {err}")
        return
    for side, name in ((0, "ours"), (1, match.client)):
        sent, received = sorted((trial[side] for trial in trials), key=_cost)[len(trials) // 2]
        print(
            f"    {name:20} {sent.messages:>9,} messages {min(sent.rate, received.rate):>11,.0f} msg/s   "
            f"µs per message: send {sent.cpu_us:.3f} + receive {received.cpu_us:.3f} "
            f"= {sent.cpu_us + received.cpu_us:.3f}"
        )
        if not side:
            print(
                f"    {'':20} batch path: send {sent.batch_share:.1%}, receive {received.batch_share:.1%}; mean run: "
                f"send {sent.run_length:.0f}, receive {received.run_length:.1f} messages"
            )
    what = f"{match.protocol} through {match.system}, {SIZE} B"
    costs = [(_cost(ours), _cost(theirs)) for ours, theirs in trials]
    compare("clients", what, "µs CPU per message", match.client, costs, wanted=1 / match.wanted)
    rates = [(min(ours[0].rate, ours[1].rate), min(theirs[0].rate, theirs[1].rate)) for ours, theirs in trials]
    compare("clients", what, "msg/s", match.client, rates, wanted=1.0, less_is_better=False)
    ratios = sorted(_cost(theirs) / _cost(ours) for ours, theirs in trials)
    print(f"    theirs ÷ ours, by trial: {', '.join(f'{ratio:.1f}' for ratio in ratios)}")
    print(f"    theirs ÷ ours = {statistics.median(ratios):.1f}×, wanted {match.wanted:g}×", flush=True)


def main() -> None:
    print(f"client CPU per message, {SIZE} B, at least once, one sender and one receiver process, {TRIALS} trials each")
    for match in MATCHES:
        _show(match)


if __name__ == "__main__":
    main()
