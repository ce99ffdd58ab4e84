"""Does everything still hold for hundreds of thousands of messages, on every broker and protocol?"""

import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from crescendo.model.verdict import Outcome
from whole_runs import Launcher, Session, judged

pytestmark = pytest.mark.soak

MANY = 200_000
SPOKEN = {
    "amqp10": ("rabbitmq", "activemq", "artemis", "qpid-broker-j"),
    "amqp091": ("rabbitmq", "qpid-broker-j"),
    "stomp": ("rabbitmq", "activemq", "artemis"),
    "mqtt": ("mosquitto", "rabbitmq", "activemq", "artemis"),
    "openwire": ("activemq", "artemis"),
    "core": ("artemis",),
}
MEETINGS = [(protocol, kind) for protocol, kinds in SPOKEN.items() for kind in kinds]
SHUFFLED = {("mqtt", "artemis")}  # docs/systems.md says how paho-mqtt sees it
FLAT_MESSAGES = 5_000_000
FLAT_BYTES = 40 * 2**20


@pytest.mark.parametrize(("protocol", "kind"), MEETINGS, ids=[f"{protocol}-{kind}" for protocol, kind in MEETINGS])
def test_each_of_many_messages_is_settled_and_arrives_once(
    protocol: str, kind: str, launch: Launcher, experiment: Callable[..., Path], spark: SparkSession
) -> None:
    address = "topic://long" if protocol == "mqtt" else "queue://long"
    path = experiment(
        system={"kind": kind},
        workload={"protocol": protocol, "address": address, "rate": 0, "senders": 1, "receivers": 1},
        phases={"warmup": "0s", "measure": f"{MANY} messages", "drain": "60s"},
        checks={"lost": 0, "duplicated": 0, "corrupt": 0} | ({} if (protocol, kind) in SHUFFLED else {"reordered": 0}),
    )
    session = launch.without_analysis(path)
    ended = session.finish(600)
    assert (ended.returncode, ended.stdout) == (0, "sealed\n"), ended.stderr
    summary = judged(session, spark)
    assert summary.verdict.outcome is Outcome.PASS, summary.verdict
    total = summary.total
    assert (total.sent, total.settled, total.delivered, total.stray) == (MANY, MANY, MANY, 0)


class Scales:
    """The memory of the peers of a run, sampled several times a second."""

    def __init__(self, session: Session) -> None:
        self.weights: dict[str, list[int]] = {"sender": [], "receiver": []}
        self._peers = {role: session.peer(role) for role in self.weights}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._weigh)
        self._thread.start()

    def _weigh(self) -> None:
        while not self._done.wait(0.1):
            for role, peer in self._peers.items():
                try:
                    self.weights[role].append(peer.memory_info().rss)
                except psutil.NoSuchProcess:
                    return

    def stop(self) -> dict[str, list[int]]:
        self._done.set()
        self._thread.join()
        return self.weights


@pytest.mark.parametrize("rate", [0, 30_000], ids=["unbounded", "paced"])
def test_memory_is_flat_over_millions_of_messages(rate: int, launch: Launcher, experiment: Callable[..., Path]) -> None:
    messages = FLAT_MESSAGES if rate == 0 else FLAT_MESSAGES // 5
    path = experiment(
        workload={"rate": rate, "senders": 1, "receivers": 1},
        phases={"warmup": "0s", "measure": f"{messages} messages", "drain": "30s"},
    )
    session = launch.without_analysis(path)
    session.wait_for_measure()
    scales = Scales(session)
    ended = session.finish(300)
    weights = scales.stop()
    assert (ended.returncode, ended.stdout) == (0, "sealed\n"), ended.stderr
    for role, seen in weights.items():
        settled_in, last = seen[len(seen) // 4], max(seen[3 * len(seen) // 4 :])
        assert len(seen) >= 10, f"{role}: too short a run to tell"
        assert last - settled_in < FLAT_BYTES, f"{role}: {settled_in / 2**20:.0f} MB became {last / 2**20:.0f} MB"
