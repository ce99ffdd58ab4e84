"""The router's recorded answers, against what Proton decodes from the same bytes."""

from typing import Any

import pytest

from crescendo.client.messages import Amqp10Message, decode_message
from crescendo.inspectors.base import Inspection
from crescendo.inspectors.kinds.qpid_dispatch import TYPES, entities_of, query_of, take_answer
from crescendo.model.errors import PeerError
from dispatch_recordings import RECORDED, at_another_moment, decoded, message_of
from inspecting import values_of


def recorded_look(*kinds: str) -> Inspection:
    look = Inspection()
    for kind in kinds:
        take_answer(look, kind, decode_message(message_of(kind, "router")))
    return look


def expected(kind: str) -> list[dict[str, Any]]:
    body = decoded(kind).body
    return [dict(zip(body["attributeNames"], values, strict=True)) for values in body["results"]]


@pytest.mark.parametrize("kind", RECORDED)
def test_every_attribute_of_every_entity_is_what_proton_decodes(kind: str) -> None:
    look = recorded_look(kind)
    values = values_of(look)
    assert expected(kind), "the recording holds entities"
    for entity in expected(kind):
        name = f"{kind}/{entity['identity'].removeprefix(kind + '/')}"
        for attribute, value in entity.items():
            if isinstance(value, bool | int | float):
                assert values[name, attribute] == value
            elif isinstance(value, str):
                assert look.texts[name, attribute] == value
            elif value is None:
                assert (name, attribute) not in values
                assert (name, attribute) not in look.texts


@pytest.mark.parametrize("kind", RECORDED)
def test_our_questions_are_those_the_foreign_client_asked(kind: str) -> None:
    asked = decode_message(message_of(kind, "client"))
    assert query_of(kind) == dict(asked.application_properties)
    assert asked.body == {"attributeNames": []}


@pytest.mark.parametrize("kind", RECORDED)
def test_names_and_kinds_of_attributes_are_those_written_down_at_another_moment(kind: str) -> None:
    other = at_another_moment(kind)
    assert query_of(kind) == other["request"]["properties"]
    ours = entities_of(decode_message(message_of(kind, "router")).body)[0]
    body = other["body"]
    theirs = dict(zip(body["attributeNames"], body["results"][0], strict=True))
    assert list(ours) == list(theirs)
    for attribute, value in theirs.items():
        if value is not None and ours[attribute] is not None:
            assert isinstance(ours[attribute], type(value)), attribute


def test_all_types_of_the_thesis_are_asked_for() -> None:
    assert set(RECORDED) | {"router.config.autoLink", "router.config.linkRoute"} == set(TYPES)


def test_a_type_that_the_router_does_not_have_is_noted_and_not_fatal() -> None:
    look = recorded_look("router.stats")
    assert look.readings == []
    assert "No such entity type" in look.texts["management", "router.stats"]


def test_memory_is_there_in_bytes_beside_the_counts() -> None:
    values = values_of(recorded_look("allocator"))
    for block in expected("allocator"):
        entity = f"allocator/{block['typeName']}"
        assert values[entity, "totalAllocFromHeapBytes"] == block["totalAllocFromHeap"] * block["typeSize"]
        assert values[entity, "heldByThreadsBytes"] == block["heldByThreads"] * block["typeSize"]
        assert values[entity, "totalAllocFromHeap"] == block["totalAllocFromHeap"]


def test_a_new_attribute_is_recorded_and_a_missing_one_is_not_fatal() -> None:
    body = {"attributeNames": ["identity", "brandNew", "words", "lost"], "results": [["7", 5, "hello"], ["8"]]}
    look = Inspection()
    take_answer(look, "router.link", Amqp10Message(body, {"statusCode": 200}))
    assert values_of(look) == {("router.link/7", "brandNew"): 5.0}
    assert look.texts["router.link/7", "words"] == "hello"
    assert look.texts["router.link/8", "identity"] == "8"


@pytest.mark.parametrize("body", [None, b"x", [], {}, {"attributeNames": 3, "results": []}, {"attributeNames": []}])
def test_an_answer_that_is_none_is_the_routers_fault(body: object) -> None:
    with pytest.raises(PeerError):
        entities_of(body)
