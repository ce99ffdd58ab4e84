"""Attributes and names as systems report them."""

import json

import pytest

from crescendo.inspectors.attributes import MAX_TEXT, add_attributes
from crescendo.inspectors.base import Inspection, InspectionTarget
from crescendo.inspectors.kinds.artemis import ArtemisInspector
from crescendo.inspectors.sources.jolokia import properties_of
from crescendo.inspectors.sources.jvm import area_of
from inspecting import values_of
from misbehaving_http import answering, serving


def test_numbers_are_readings_and_everything_else_is_kept_as_text() -> None:
    inspection = Inspection()
    add_attributes(
        inspection, "e", {"n": 3, "yes": True, "inner": {"rate": 0.5, "name": "x"}, "list": [1, "a"], "none": None}
    )
    assert values_of(inspection) == {("e", "n"): 3.0, ("e", "yes"): 1.0, ("e", "inner.rate"): 0.5}
    assert inspection.texts == {("e", "inner.name"): "x", ("e", "list"): '[1, "a"]'}


def test_a_value_that_is_not_finite_is_not_a_reading() -> None:
    inspection = Inspection()
    add_attributes(inspection, "e", {"nan": float("nan"), "infinite": float("inf")})
    assert inspection.readings == []


def test_secrets_are_left_out_by_name_and_by_content() -> None:
    inspection = Inspection()
    add_attributes(
        inspection, "e", {"keyStorePassword": "hush", "acceptor": "tcp://x?keyStorePassword=hush", "plain": "words"}
    )
    assert inspection.texts == {("e", "plain"): "words"}


def test_texts_have_a_limited_length() -> None:
    inspection = Inspection()
    add_attributes(inspection, "e", {"long": "x" * (2 * MAX_TEXT), "deep": json.loads('{"a":' * 50 + "1" + "}" * 50)})
    assert all(len(text) <= MAX_TEXT for text in inspection.texts.values())


@pytest.mark.parametrize(
    ("pool", "area"),
    [
        ("G1 Eden Space", "eden"), ("PS Eden Space", "eden"), ("Eden Space", "eden"), ("Par Eden Space", "eden"),
        ("G1 Survivor Space", "survivor"), ("PS Survivor Space", "survivor"), ("Survivor Space", "survivor"),
        ("G1 Old Gen", "tenured"), ("PS Old Gen", "tenured"), ("Tenured Gen", "tenured"), ("CMS Old Gen", "tenured"),
        ("Metaspace", "metaspace"), ("PS Perm Gen", "metaspace"), ("ZGC Old Generation", "tenured"),
        ("Compressed Class Space", "compressed-class-space"), ("CodeHeap 'non-nmethods'", "codeheap-non-nmethods"),
    ],
)  # fmt: skip
def test_memory_areas_have_the_same_name_for_every_collector(pool: str, area: str) -> None:
    assert area_of(pool) == area


def test_bean_names_with_quotes_and_commas_are_parsed() -> None:
    bean = r'org.x:broker="b",component=addresses,address="a,b=\"c\"",queue="q:1"'
    assert properties_of(bean) == {"broker": "b", "component": "addresses", "address": 'a,b="c"', "queue": "q:1"}


def test_missing_beans_are_recorded_and_the_others_are_read() -> None:
    memory = {"status": 200, "value": {"HeapMemoryUsage": {"used": 5, "brandNew": 6}}}
    gone = {"status": 404, "error": "javax.management.InstanceNotFoundException"}
    with serving(answering("200 OK", json.dumps([memory, *[gone] * 7]).encode())) as url:
        inspector = ArtemisInspector(InspectionTarget({"management": url}))
        inspection = inspector.inspect()
        inspector.close()
    assert values_of(inspection) == {("memory/heap", "used"): 5.0, ("memory/heap", "brandNew"): 6.0}
    assert inspection.texts["jolokia", "queues"].endswith("InstanceNotFoundException")
