"""Is everything that a link does to a message seen? It is tampered with by hand, and compared with python-proton."""

from dataclasses import replace

import proton
import pytest

from crescendo.client.amqp10_message import decode_message
from crescendo.client.sections import MessageSections, sections_of
from crescendo.model.errors import PeerError
from crescendo.topology.link_fidelity import BODY_KINDS, MANGLED, FidelityCount, LinkFidelity, link_message
from crescendo.wire.amqp10.performatives import Header

TAG = "0a1b2c3d"


def _counted(*arrivals: bytes, sent: int) -> LinkFidelity:
    count = FidelityCount(TAG)
    for octets in arrivals:
        count.take(octets)
    return count.result("a", "b", "q", sent)


def _messages(count: int) -> list[MessageSections]:
    return [link_message(TAG, number) for number in range(count)]


def test_unchanged_messages_are_faithful() -> None:
    found = _counted(*(each.encoded() for each in _messages(20)), sent=20)
    assert found.is_faithful
    assert [(body.equal, body.messages) for body in found.bodies] == [(4, 4)] * len(BODY_KINDS)
    assert {"text", "whole", "long", "flag", "real", "durable", "priority", "subject"} <= set(found.kept)


def test_losses_repeats_and_order_are_counted_exactly() -> None:
    sent = [each.encoded() for each in _messages(6)]
    found = _counted(sent[0], sent[3], sent[1], sent[3], sent[5], b"a stranger", sent=6)
    assert (found.arrived, found.lost, found.duplicated, found.reordered) == (4, 2, 1, 1)
    assert not found.is_complete


def test_messages_of_an_earlier_probe_are_not_ours() -> None:
    assert not FidelityCount(TAG).take(link_message("ffffffff", 0).encoded())


def test_properties_that_are_lost_changed_or_added_are_named() -> None:
    whole = link_message(TAG, 0)
    without = {name: value for name, value in whole.application_properties.items() if name != "flag"}
    tampered = replace(
        whole,
        application_properties={**without, "whole": "0", "x-added": 1},
        header=Header(durable=False, priority=7),
    )
    found = _counted(tampered.encoded(), sent=1)
    assert found.dropped == ["flag"]
    assert found.changed == ["durable", "whole"]  # the number became text, and a durable message is not durable
    assert found.added == ["x-added"]
    assert found.is_complete
    assert not found.is_faithful


def test_a_body_in_another_section_is_found_by_its_mark() -> None:
    """As RabbitMQ 3.10 hands on what it does not understand: the encoded value section as bytes of a data section."""
    text = link_message(TAG, 1)
    raw = b"\x00\x53\x77" + b"\xa1" + bytes([len(text.body)]) + text.body.encode()
    [data, text_value, *_] = _counted(replace(text, body_section="data", body=raw).encoded(), sent=2).bodies
    assert text_value.arrived_as == {"data": 1}
    assert (text_value.equal, text_value.messages) == (0, 1)
    assert data.messages == 0


def test_a_body_that_was_altered_is_mangled() -> None:
    data = link_message(TAG, 0)
    [body, *_] = _counted(replace(data, body=data.body + b"!").encoded(), sent=1).bodies
    assert body.arrived_as == {MANGLED: 1}


def test_a_section_that_no_decoder_accepts_is_named_and_the_body_is_compared_all_the_same() -> None:
    """As RabbitMQ 3.10 encodes application properties of AMQP 1.0 on their way to another broker: text in no UTF-8."""
    octets = link_message(TAG, 0).encoded()
    at = octets.index(b"text", octets.index(b"\x00\x53\x74"))
    broken = octets[:at] + b"\xff" + octets[at + 1 :]
    with pytest.raises(PeerError):
        decode_message(memoryview(broken))
    found = _counted(broken, sent=1)
    assert found.invalid == {"application properties": 1}
    assert {"flag", "long", "real", "text", "whole"} <= set(found.dropped)
    assert found.bodies[0].equal == 1
    assert not found.is_faithful


def test_a_message_without_sections_is_counted_as_not_valid() -> None:
    found = _counted(b"\x40" + link_message(TAG, 0).encoded(), link_message(TAG, 1).encoded()[:-1], sent=2)
    assert found.invalid == {"message": 2}
    assert [body.arrived_as for body in found.bodies[:2]] == [{MANGLED: 1}, {MANGLED: 1}]


def test_sections_are_those_that_proton_reads_and_writes() -> None:
    for number, kind in enumerate(BODY_KINDS):
        ours, theirs = link_message(TAG, number), proton.Message()
        theirs.decode(ours.encoded())
        assert theirs.properties["whole"] == number
        assert (theirs.durable, theirs.priority, theirs.subject) == (True, 7, "probe")
        assert theirs.inferred is (kind in {"data", "sequence"})
        again = sections_of(theirs.encode())
        assert (again.body_section, again.body) == (ours.body_section, ours.body)
        assert again.application_properties == ours.application_properties
