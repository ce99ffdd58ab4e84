"""Can a broken or hostile peer do more than end its own connection?

Valid streams of every protocol, in both directions, are damaged at random (bits, cuts, insertions, lengths, repeated
and moved stretches) and read by a connection that reacts as the load and the relay do. Only PeerError and Refused may
come out, in bounded time, and a small stream may not make us speak or remember without end.
"""

import tracemalloc

import pytest

from amqp091_fuzz_targets import AMQP091_VICTIMS
from amqp10_fuzz_targets import AMQP10_VICTIMS
from fuzzing import Victim, bombard
from mqtt_fuzz_targets import MQTT_VICTIMS
from stomp_fuzz_targets import STOMP_VICTIMS

FAST_MUTATIONS = 4_000
SOAK_MUTATIONS = 1_000_000

PROTOCOLS = [AMQP10_VICTIMS, AMQP091_VICTIMS, STOMP_VICTIMS, MQTT_VICTIMS]
protocols = pytest.mark.parametrize("victims", PROTOCOLS, ids=["amqp10", "amqp091", "stomp", "mqtt"])
each = pytest.mark.parametrize(
    "victim", [victim for victims in PROTOCOLS for victim in victims], ids=lambda victim: victim.name
)


@each
def test_the_undamaged_stream_is_read_to_its_end(victim: Victim) -> None:
    victim.read_to_the_end()


@protocols
def test_damage_is_only_ever_the_peers_fault(victims: list[Victim]) -> None:
    for victim in victims:
        bombard(victim, FAST_MUTATIONS // len(victims), seed=1)


@each
def test_damage_leaves_nothing_behind(victim: Victim) -> None:
    bombard(victim, 25, seed=2)
    tracemalloc.start()
    try:
        bombard(victim, 25, seed=3)
        before, _ = tracemalloc.get_traced_memory()
        bombard(victim, 100, seed=4)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 256 * 1024


@pytest.mark.soak
@pytest.mark.timeout(7200)
@protocols
def test_a_million_kinds_of_damage_are_only_ever_the_peers_fault(victims: list[Victim]) -> None:
    for victim in victims:
        bombard(victim, SOAK_MUTATIONS // len(victims), seed=5)
