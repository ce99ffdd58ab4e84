"""Can a broken or hostile peer do more than end its own connection?

Valid streams of every protocol, in both directions, are damaged at random (bits, cuts, insertions, lengths, repeated
and moved ranges) and read by a connection that reacts as the load generator and the relay do. The result must be
PeerError or Refused, in bounded time, and a small stream must not cause unbounded replies or memory.
"""

import tracemalloc

import pytest

from amqp091_fuzz_targets import AMQP091_FUZZ_TARGETS
from amqp10_fuzz_targets import AMQP10_FUZZ_TARGETS
from core_fuzz_targets import CORE_FUZZ_TARGETS
from fuzzing import FuzzTarget, fuzz
from mqtt_fuzz_targets import MQTT_FUZZ_TARGETS
from openwire_fuzz_targets import OPENWIRE_FUZZ_TARGETS
from stomp_fuzz_targets import STOMP_FUZZ_TARGETS

FAST_MUTATIONS = 1_500
SOAK_MUTATIONS = 1_000_000

PROTOCOLS = [
    AMQP10_FUZZ_TARGETS,
    AMQP091_FUZZ_TARGETS,
    STOMP_FUZZ_TARGETS,
    MQTT_FUZZ_TARGETS,
    OPENWIRE_FUZZ_TARGETS,
    CORE_FUZZ_TARGETS,
]
protocols = pytest.mark.parametrize(
    "targets", PROTOCOLS, ids=["amqp10", "amqp091", "stomp", "mqtt", "openwire", "core"]
)
each = pytest.mark.parametrize(
    "target", [target for targets in PROTOCOLS for target in targets], ids=lambda target: target.name
)


@each
def test_the_undamaged_stream_is_read_to_its_end(target: FuzzTarget) -> None:
    target.read_undamaged()


@protocols
def test_damage_is_only_ever_the_peers_fault(targets: list[FuzzTarget]) -> None:
    for target in targets:
        fuzz(target, FAST_MUTATIONS // len(targets), seed=1)


@each
def test_damage_leaks_no_memory(target: FuzzTarget) -> None:
    fuzz(target, 25, seed=2)
    tracemalloc.start()
    try:
        fuzz(target, 25, seed=3)
        before, _ = tracemalloc.get_traced_memory()
        fuzz(target, 100, seed=4)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 256 * 1024


@pytest.mark.soak
@pytest.mark.timeout(7200)
@protocols
def test_a_million_mutations_are_only_ever_the_peers_fault(targets: list[FuzzTarget]) -> None:
    for target in targets:
        fuzz(target, SOAK_MUTATIONS // len(targets), seed=5)
