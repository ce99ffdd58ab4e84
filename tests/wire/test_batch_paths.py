"""Does the batch path mean exactly what the scalar path means, in every protocol whose client only listens?

The same bytes in any chunking must yield the same messages with and without batching, undamaged and damaged. Each
protocol brings its streams, whose meaning is composed by hand. What only one protocol has is in its own tests.
"""

from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import core_streams
import openwire_streams
import stomp_streams
from crescendo.model.errors import PeerError
from stream_feed import events_of

STREAMS = {"stomp": stomp_streams, "openwire": openwire_streams, "core": core_streams}
each_protocol = pytest.mark.parametrize("streams", STREAMS.values(), ids=STREAMS)
relaxed = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow, HealthCheck.large_base_example],
)
some_damage = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=3)


@each_protocol
@relaxed
@given(data=st.data(), cuts=st.lists(st.integers(0, 40_000), max_size=12), batching=st.booleans())
def test_any_chunking_yields_the_same_messages_on_both_paths(
    streams: ModuleType, data: st.DataObject, cuts: list[int], batching: bool
) -> None:
    script = data.draw(streams.scripts())
    assert streams.listen(streams.client_of(batching=batching), bytes(script.octets), cuts) == script.expected


@each_protocol
@settings(relaxed, max_examples=10)
@given(data=st.data(), batching=st.booleans())
def test_byte_by_byte_yields_the_same_messages(streams: ModuleType, data: st.DataObject, batching: bool) -> None:
    script = data.draw(streams.scripts())
    octets = bytes(script.octets[:6000])
    found = streams.listen(streams.client_of(batching=batching), octets, range(len(octets)))
    assert found == script.expected[: len(found)]
    assert len(found) >= len(script.expected) or len(octets) == 6000


@each_protocol
@settings(relaxed, max_examples=80)
@given(data=st.data(), damage=some_damage)
def test_both_paths_agree_on_damaged_runs(
    streams: ModuleType, data: st.DataObject, damage: list[tuple[int, int]]
) -> None:
    """Whichever bytes of a run are damaged, both paths see the same messages and end with the same error."""
    octets = bytearray(data.draw(streams.scripts()).octets)
    for at, value in damage:
        octets[at % len(octets)] = value
    results = []
    for batching in (True, False):
        entries: list[object] = []
        try:
            for event in events_of(streams.client_of(batching=batching), bytes(octets)):
                entries += streams.flattened(event)
        except PeerError as err:
            entries.append(str(err))
        results.append(entries)
    assert results[0] == results[1]
