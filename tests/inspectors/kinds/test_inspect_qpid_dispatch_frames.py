"""The router's recorded answers, compared with what Proton decodes from the same bytes."""

from typing import Any

import pytest

from crescendo.client.amqp10_message import Amqp10Message, decode_message
from crescendo.inspectors.base import Inspection
from crescendo.inspectors.kinds.qpid_dispatch import TYPES, add_answer, entities_of, query_of
from crescendo.model.errors import PeerError
from dispatch_recordings import RECORDED, decoded, decoded_by_foreign_client, message_of
from inspecting import values_of


def recorded_inspection(*kinds: str) -> Inspection:
    inspection = Inspection()
    for kind in kinds:
        add_answer(inspection, kind, decode_message(message_of(kind, "router")))
    return inspection


def expected(kind: str) -> list[dict[str, Any]]:
    body = decoded(kind).body
    return [dict(zip(body["attributeNames"], values, strict=True)) for values in body["results"]]


@pytest.mark.parametrize("kind", RECORDED)
def test_every_attribute_of_every_entity_is_what_proton_decodes(kind: str) -> None:
    inspection = recorded_inspection(kind)
    values = values_of(inspection)
    assert expected(kind), "the recording holds entities"
    for entity in expected(kind):
        name = f"{kind}/{entity['identity'].removeprefix(kind + '/')}"
        for attribute, value in entity.items():
            if isinstance(value, bool | int | float):
                assert values[name, attribute] == value
            elif isinstance(value, str):
                assert inspection.texts[name, attribute] == value
            elif value is None:
                assert (name, attribute) not in values
                assert (name, attribute) not in inspection.texts


@pytest.mark.parametrize("kind", RECORDED)
def test_our_queries_are_those_of_the_foreign_client(kind: str) -> None:
    asked = decode_message(message_of(kind, "client"))
    assert query_of(kind) == dict(asked.application_properties)
    assert asked.body == {"attributeNames": []}


@pytest.mark.parametrize("kind", RECORDED)
def test_names_and_types_of_attributes_match_those_of_the_foreign_client(kind: str) -> None:
    other = decoded_by_foreign_client(kind)
    assert query_of(kind) == other["request"]["properties"]
    ours = entities_of(decode_message(message_of(kind, "router")).body)[0]
    body = other["body"]
    theirs = dict(zip(body["attributeNames"], body["results"][0], strict=True))
    assert list(ours) == list(theirs)
    for attribute, value in theirs.items():
        if value is not None and ours[attribute] is not None:
            assert isinstance(ours[attribute], type(value)), attribute


def test_all_types_of_the_thesis_are_queried() -> None:
    assert set(RECORDED) | {"router.config.autoLink", "router.config.linkRoute"} == set(TYPES)


def test_a_type_that_the_router_lacks_is_recorded_and_not_fatal() -> None:
    inspection = recorded_inspection("router.stats")
    assert inspection.readings == []
    assert "No such entity type" in inspection.texts["management", "router.stats"]


def test_memory_is_reported_in_bytes_beside_the_counts() -> None:
    values = values_of(recorded_inspection("allocator"))
    for block in expected("allocator"):
        entity = f"allocator/{block['typeName']}"
        assert values[entity, "totalAllocFromHeapBytes"] == block["totalAllocFromHeap"] * block["typeSize"]
        assert values[entity, "heldByThreadsBytes"] == block["heldByThreads"] * block["typeSize"]
        assert values[entity, "totalAllocFromHeap"] == block["totalAllocFromHeap"]


def test_a_new_attribute_is_recorded_and_a_missing_one_is_not_fatal() -> None:
    body = {"attributeNames": ["identity", "brandNew", "words", "lost"], "results": [["7", 5, "hello"], ["8"]]}
    inspection = Inspection()
    add_answer(inspection, "router.link", Amqp10Message(body, {"statusCode": 200}))
    assert values_of(inspection) == {("router.link/7", "brandNew"): 5.0}
    assert inspection.texts["router.link/7", "words"] == "hello"
    assert inspection.texts["router.link/8", "identity"] == "8"


@pytest.mark.parametrize("body", [None, b"x", [], {}, {"attributeNames": 3, "results": []}, {"attributeNames": []}])
def test_an_invalid_answer_is_a_peer_error(body: object) -> None:
    with pytest.raises(PeerError):
        entities_of(body)
