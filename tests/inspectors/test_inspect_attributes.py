"""Attributes and names, as systems give them."""

import json

import pytest

from crescendo.inspectors.attributes import MAX_TEXT, take
from crescendo.inspectors.base import Inspection, InspectionTarget
from crescendo.inspectors.kinds.artemis import ArtemisInspector
from crescendo.inspectors.sources.jolokia import properties_of
from crescendo.inspectors.sources.jvm import area_of
from inspecting import values_of
from misbehaving_http import answering, serving


def test_numbers_are_readings_and_everything_else_is_kept_as_text() -> None:
    look = Inspection()
    take(look, "e", {"n": 3, "yes": True, "inner": {"rate": 0.5, "name": "x"}, "list": [1, "a"], "none": None})
    assert values_of(look) == {("e", "n"): 3.0, ("e", "yes"): 1.0, ("e", "inner.rate"): 0.5}
    assert look.texts == {("e", "inner.name"): "x", ("e", "list"): '[1, "a"]'}


def test_what_is_not_finite_is_no_reading() -> None:
    look = Inspection()
    take(look, "e", {"nan": float("nan"), "infinite": float("inf")})
    assert look.readings == []


def test_secrets_are_left_out_by_name_and_by_what_they_say() -> None:
    look = Inspection()
    take(look, "e", {"keyStorePassword": "hush", "acceptor": "tcp://x?keyStorePassword=hush", "plain": "words"})
    assert look.texts == {("e", "plain"): "words"}


def test_texts_have_an_end() -> None:
    look = Inspection()
    take(look, "e", {"long": "x" * (2 * MAX_TEXT), "deep": json.loads('{"a":' * 50 + "1" + "}" * 50)})
    assert all(len(text) <= MAX_TEXT for text in look.texts.values())


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
def test_areas_have_one_name_whichever_collector_runs(pool: str, area: str) -> None:
    assert area_of(pool) == area


def test_names_of_beans_are_read_with_their_quotes_and_commas() -> None:
    bean = r'org.x:broker="b",component=addresses,address="a,b=\"c\"",queue="q:1"'
    assert properties_of(bean) == {"broker": "b", "component": "addresses", "address": 'a,b="c"', "queue": "q:1"}


def test_beans_that_are_missing_are_noted_and_the_others_are_read() -> None:
    memory = {"status": 200, "value": {"HeapMemoryUsage": {"used": 5, "brandNew": 6}}}
    gone = {"status": 404, "error": "javax.management.InstanceNotFoundException"}
    with serving(answering("200 OK", json.dumps([memory, *[gone] * 7]).encode())) as url:
        inspector = ArtemisInspector(InspectionTarget({"management": url}))
        look = inspector.inspect()
        inspector.close()
    assert values_of(look) == {("memory/heap", "used"): 5.0, ("memory/heap", "brandNew"): 6.0}
    assert look.texts["jolokia", "queues"].endswith("InstanceNotFoundException")
