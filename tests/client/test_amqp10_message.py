"""Do we and Proton encode and decode messages alike?"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message as ProtonMessage

from crescendo.client.amqp10_message import Amqp10Message, decode_message, encode_message
from crescendo.model.errors import PeerError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(body=VALUES, properties=st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=3))
def test_proton_reads_what_we_write(body: object, properties: dict[str, str]) -> None:
    ours = Amqp10Message(body, properties, message_id="m", to="there", subject="s", reply_to="here", correlation_id="c")
    theirs = ProtonMessage()
    theirs.decode(encode_message(ours))
    assert theirs.body == body
    assert dict(theirs.properties or {}) == properties
    assert (theirs.id, theirs.address, theirs.subject) == ("m", "there", "s")
    assert (theirs.reply_to, theirs.correlation_id) == ("here", "c")
    assert theirs.inferred is isinstance(body, bytes)


@given(body=VALUES, durable=st.booleans())
def test_we_read_what_proton_writes(body: object, durable: bool) -> None:
    theirs = ProtonMessage(
        body=body,
        durable=durable,
        reply_to="here",
        correlation_id="c",
        properties={"statusCode": 200},
        annotations={"x-note": 1},
        inferred=isinstance(body, bytes),
    )
    ours = decode_message(memoryview(theirs.encode()))
    assert ours.body == body
    assert ours.application_properties == {"statusCode": 200}
    assert (ours.reply_to, ours.correlation_id) == ("here", "c")


def test_a_body_in_several_data_sections_is_one_body() -> None:
    section = encode_message(Amqp10Message(b"half"))
    assert decode_message(memoryview(section + section)).body == b"halfhalf"


@given(st.binary(max_size=200))
def test_garbage_is_the_peers_fault_and_nothing_worse(octets: bytes) -> None:
    with contextlib.suppress(PeerError):
        decode_message(memoryview(octets))


@pytest.mark.parametrize("octets", [b"\x41", b"\x00\x53\x73\x41", b"\x00\x53\x75\xa1\x01a", b"\x00\x53\x77"])
def test_a_section_of_the_wrong_kind_is_the_peers_fault(octets: bytes) -> None:
    with pytest.raises(PeerError):
        decode_message(memoryview(octets))
