"""Does the schema accept every experiment of ours, and reject what a reader of the file would reject?"""

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from crescendo.cli.main import app
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, read_mapping
from crescendo.model.experiment_keys import KEYS
from crescendo.model.experiment_schema import experiment_schema, keys_table

ROOT = Path(__file__).parents[2]
EXPERIMENTS = [
    path
    for path in sorted((ROOT / "experiments").glob("*/*.yml"))  # topologies stand one directory lower
    if "\nfactors:" not in path.read_text(encoding="utf-8")  # a campaign
]
SCHEMA = experiment_schema()
TYPES: dict[str, Any] = {"string": str, "object": dict, "array": list, "boolean": bool, "null": type(None)}


def mistakes(value: Any, schema: dict[str, Any], at: str = "$") -> list[str]:
    """What a validator would say. Knows the words that our schema uses, and fails on any other."""
    found: list[str] = []
    for word, argument in schema.items():
        found += [f"{at}: {sentence}" for sentence in CHECKS[word](value, argument, schema)]
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, part in value.items():
            inner = properties.get(key, others)
            if isinstance(inner, dict):
                found += mistakes(part, inner, f"{at}.{key}")
    if isinstance(value, list) and "items" in schema:
        for number, part in enumerate(value):
            found += mistakes(part, schema["items"], f"{at}[{number}]")
    return found


def _type(value: Any, wanted: str, _: dict[str, Any]) -> list[str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {"number": number, "integer": number and isinstance(value, int)}
    return [] if fits.get(wanted, wanted in TYPES and isinstance(value, TYPES[wanted])) else [f"is not {wanted}"]


def _any_of(value: Any, choices: list[dict[str, Any]], _: dict[str, Any]) -> list[str]:
    tried = [mistakes(value, choice) for choice in choices]
    return [] if [] in tried else [f"fits no choice: {tried}"]


def _unknown(value: Any, allowed: Any, schema: dict[str, Any]) -> list[str]:
    if allowed is not False or not isinstance(value, dict):
        return []
    return [f"unknown key {key}" for key in value if key not in schema.get("properties", {})]


def _missing(value: Any, keys: list[str], _: dict[str, Any]) -> list[str]:
    return [f"{key} is missing" for key in keys if isinstance(value, dict) and key not in value]


def _limit(test: Any, kind: Any) -> Any:
    return lambda value, limit, _: [] if not isinstance(value, kind) or test(value, limit) else [f"exceeds {limit}"]


def _nothing(*_: Any) -> list[str]:
    return []


CHECKS: dict[str, Any] = {
    "type": _type,
    "anyOf": _any_of,
    "$ref": lambda value, name, _: mistakes(value, SCHEMA["$defs"][name.rpartition("/")[2]]),
    "enum": lambda value, choices, _: [] if value in choices else [f"is not one of {choices}"],
    "const": lambda value, wanted, _: [] if value == wanted else [f"is not {wanted}"],
    "pattern": lambda value, pattern, _: [] if not isinstance(value, str) or re.search(pattern, value) else ["pattern"],
    "required": lambda value, keys, _: [
        f"{key} is missing" for key in keys if isinstance(value, dict) and key not in value
    ],
    "additionalProperties": _unknown,
    "minimum": _limit(lambda value, limit: value >= limit, int | float),
    "maximum": _limit(lambda value, limit: value <= limit, int | float),
    "exclusiveMinimum": _limit(lambda value, limit: value > limit, int | float),
    "minItems": _limit(lambda value, limit: len(value) >= limit, list),
    "maxItems": _limit(lambda value, limit: len(value) <= limit, list),
    "minProperties": _limit(lambda value, limit: len(value) >= limit, dict),
    "minLength": _limit(lambda value, limit: len(value) >= limit, str),
    "maxLength": _limit(lambda value, limit: len(value) <= limit, str),
    **dict.fromkeys(
        ("properties", "items", "title", "description", "default", "discriminator", "$defs", "$schema"), _nothing
    ),
}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_experiment_is_valid(path: Path) -> None:
    assert mistakes(read_mapping(path, "name"), SCHEMA) == []  # in which `on` is a key, as in YAML 1.2


def test_there_are_experiments_to_check() -> None:
    assert len(EXPERIMENTS) > 30


@pytest.mark.parametrize(
    "text",
    [
        "wrokload: {}",
        "workload: {raet: 5}",
        "workload: [{name: a}, {rate: fast}]",
        "workload: {rate: -1}",
        "workload: {senders: 40000}",
        "workload: {senders: 2.5}",
        "workload: {settle: sometimes}",
        "workload: {protocol: jms}",
        "workload: {size: 1XB}",
        "workload: {size: {lines: x}}",
        "workload: {name: 'has space'}",
        "workload: {mode: {kind: window}}",
        "workload: {mode: {kind: open, size: 5}}",
        "workload: {mode: {kind: ehco}}",
        "workload: 5",
        "phases: {warmup: 30}",
        "phases: {measure: soon}",
        "system: {kind: loopback, port: 7}",
        "inspect: [{every: 1s}]",
        "inspect: {kind: process}",
        "checks: {lost: some}",
        "profile: {kind: zigzag}",
        "profile: {kind: ramp}",
        "profile: {kind: ramp, over: 5s, form: 1}",
        "profile: {kind: steps, steps: [{factr: 1, lasts: 1s}]}",
        "search: {from: 1}",
        "clients: {name: a, kind: dance}",
        "seed: one",
        "name: '../evil'",
    ],
)
def test_what_the_schema_rejects_the_reader_rejects_too(text: str) -> None:
    document = yaml.safe_load(text)
    assert mistakes(document, SCHEMA)
    with pytest.raises(ConfigError):
        experiment_from(document, default_name="x")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{workload: {size: '~256', address: [queue://a, queue://a]}}",
        "{workload: {size: [{size: 256, weight: 3}, {size: 10KB}]}, phases: {measure: 500 messages, warmup: 0}}",
        "{checks: {lost: 0, response_p99: '<= 5ms', rate: '>= 0.99 of offered'}, stop_when: {response_p90: 200ms}}",
        "{search: {from: 1, to: 2000, resolution: 5%, confirm: 1 of 1, limits: {backlog: steady, lost: 0}}}",
        "{system: {kind: mlmq}, clients: {name: a, kind: paired, count: 2}}",
        "{profile: {kind: incremental, every: 10s, from: 0.1, step: 0.1, connections: 1, join: 1}}",
        "{system: {url: 'amqp://h'}, inspect: [{kind: process, pid: 7, every: 250ms}]}",
        "{workload: {summarize: {to: 'topic://s', every: 1s}, buffer: 5, delay: 1ms, properties: {a: b}}}",
    ],
)
def test_what_the_reader_accepts_the_schema_accepts_too(text: str) -> None:
    document = yaml.safe_load(text)
    experiment_from(document, default_name="x")
    assert mistakes(document, SCHEMA) == []


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside this one."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from _places(part, (*at, key))


def test_an_editor_marks_nothing_that_can_be_run() -> None:
    """One value of an experiment of ours is replaced, anywhere. Rules between keys make the reader stricter, only."""
    draw = random.Random(14)
    documents = [read_mapping(path, "name") for path in EXPERIMENTS]
    replacements = ["x", "", "5s", "10KB", "1 of 2", -1, 0, 1, 2.5, 10**20, True, None, [], [1], {}, {"a": 1}]
    outcomes = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for _ in range(1000):
        document = copy.deepcopy(draw.choice(documents))
        *way, last = draw.choice(list(_places(document)))
        target: Any = document
        for key in way:
            target = target[key]
        target[last] = draw.choice(replacements)
        marked = mistakes(document, SCHEMA) != []
        try:
            experiment_from(document, default_name="x")
        except ConfigError:
            outcomes[marked, False] += 1
        else:
            outcomes[marked, True] += 1
            assert not marked, (way, last, target[last])
    assert outcomes[True, False] > 500
    assert outcomes[False, True] > 50


def test_unknown_keys_are_rejected_everywhere() -> None:
    objects = [name for name, definition in SCHEMA["$defs"].items() if definition.get("type") == "object"]
    assert {"Experiment", "System", "Group", "Phases", "Inspect", "Peers", "Search", "Clients", "Step"} <= set(objects)
    assert all(SCHEMA["$defs"][name]["additionalProperties"] is False for name in objects)


def test_every_key_is_described_and_every_description_has_its_key() -> None:
    for definition in SCHEMA["$defs"].values():
        for key, schema in definition.get("properties", {}).items():
            assert schema["description"], key
    for kind, described in KEYS.items():
        assert set(described) == {field.encode_name for field in msgspec.structs.fields(kind)}


def test_a_description_belongs_to_one_key_only() -> None:
    """Types that several keys share must not share what is written about one of them."""
    stop_when = SCHEMA["$defs"]["Experiment"]["properties"]["stop_when"]
    assert "description" not in stop_when["additionalProperties"]


def test_the_documentation_lists_the_same_keys() -> None:
    text = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")
    assert "\n".join(keys_table()) in text, "write the rows of keys_table() into docs/experiment.md"


def test_the_verb_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["schema"], standalone_mode=False) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
