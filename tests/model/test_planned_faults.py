"""Are the faults of a file read strictly, and do the same file and seed give the same times?"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, load_experiment, to_document
from crescendo.model.fault_schedule import fault_schedule
from crescendo.model.planned_faults import FaultMoment

PHASES = {"warmup": "5s", "measure": "60s", "drain": "10s"}
S = 10**9


def experiment(*faults: dict[str, Any], **more: Any) -> Experiment:
    return experiment_from({"phases": PHASES, "faults": list(faults), **more}, default_name="faulty")


def offsets(*faults: dict[str, Any], **more: Any) -> list[int]:
    return [each.offset_ns for each in fault_schedule(experiment(*faults, **more))]


@pytest.mark.parametrize(
    ("at", "offset_ns"),
    [
        ("3s", 3 * S),
        (0, 0),
        ("warmup", 0),
        ("measure + 10s", 15 * S),
        ("measure+10ms", 5_010_000_000),
        ("drain", 65 * S),
    ],
)
def test_times_count_from_the_start_of_the_run_or_of_a_phase(at: object, offset_ns: int) -> None:
    assert offsets({"at": at, "do": "pause"}) == [offset_ns]


def test_a_fault_is_repeated_at_its_period_and_all_faults_are_in_order_of_time() -> None:
    schedule = fault_schedule(
        experiment({"at": "10s", "do": "stop", "for": "1s", "every": "20s", "times": 3}, {"at": "15s", "do": "kill"})
    )
    assert [(each.offset_ns // S, each.planned.do) for each in schedule] == [
        (10, "stop"), (15, "kill"), (30, "stop"), (50, "stop"),
    ]  # fmt: skip
    assert [each.number for each in schedule] == [0, 1, 2, 3]


random_faults = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(0, 20).map(lambda seconds: f"{seconds}s"),
            "do": st.sampled_from(["pause", "kill"]),
            "within": st.integers(1, 5000).map(lambda ms: f"{ms}ms"),
            "every": st.just("6s"),
            "times": st.integers(2, 5),
        }
    ),
    max_size=5,
)


@given(faults=random_faults, seed=st.integers(0, 2**63 - 1))
def test_the_same_experiment_and_seed_have_the_same_times(faults: list[dict[str, Any]], seed: int) -> None:
    first = experiment(*faults, seed=seed)
    again = experiment_from(to_document(first))
    assert fault_schedule(again) == fault_schedule(first)
    for each in fault_schedule(first):
        planned = each.planned
        begins = [planned.at.offset + number * 6 * S for number in range(planned.times)]
        assert any(begin <= each.offset_ns < begin + (planned.within or 0) for begin in begins)


def test_another_seed_has_other_times_and_another_fault_moves_none() -> None:
    random_one = {"at": "10s", "within": "30s", "do": "pause"}
    assert offsets(random_one, seed=1) != offsets(random_one, seed=2)
    assert offsets(random_one)[0] in offsets(random_one, {"at": "1s", "within": "5s", "do": "kill"})


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"at": "messure + 1s", "do": "stop"}, "faults[0].at: 'messure + 1s' is not a time such as 30s"),
        ({"at": 5, "do": "stop"}, "faults[0].at: 5 is not a time such as 30s"),
        ({"at": "5s", "doo": "stop"}, "unknown key 'doo'; did you mean 'do'?"),
        ({"at": "5s"}, "'do' is missing"),
        ({"at": "2m", "do": "stop"}, "it would begin 120 s after the start"),
        ({"at": "drain + 20s", "do": "stop"}, "it would begin 85 s after the start"),
        ({"at": "5s", "do": "stop", "every": "5s"}, "every and times go together"),
        ({"at": "5s", "do": "stop", "every": "5s", "for": "5s", "times": 2}, "the fault would overlap itself"),
        ({"at": "5s", "do": "stop", "for": 0}, "for must be longer than 0"),
        ({"at": "5s", "do": "stop", "times": 0}, "0 is out of range"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(fault: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        experiment(fault)
    assert sentence in str(raised.value)


def test_the_drain_of_a_count_of_messages_has_no_time() -> None:
    with pytest.raises(ConfigError, match="measure is a count of messages"):
        experiment({"at": "drain + 1s", "do": "stop"}, phases={"measure": "500 messages"})


def test_a_search_has_no_faults() -> None:
    searched = {"from": 10, "to": 100, "limits": {"response_p99": "<= 10ms"}}
    with pytest.raises(ConfigError, match="remove faults"):
        experiment({"at": "5s", "do": "stop"}, search=searched)


def test_secrets_of_a_fault_are_not_shown() -> None:
    fault = {"at": "5s", "do": "command", "with": {"run": ["x"], "password": "hidden-word"}}
    assert "hidden-word" not in str(to_document(experiment(fault).redacted()))


def test_an_experiment_without_faults_looks_as_before() -> None:
    assert "faults" not in to_document(experiment())
    assert FaultMoment.parse("measure").plain() == "measure + 0s"


def test_the_key_on_is_text_in_a_file_and_in_an_override(tmp_path: Path) -> None:
    path = tmp_path / "faulty.yml"
    path.write_text(
        "topology: line.yml\nworkload: {send_to: a, receive_from: b}\nfaults: [{at: 1s, on: b, do: pause}]\n"
    )
    assert load_experiment(path).faults[0].on == "b"
    overridden = experiment_from({}, ("faults=[{at: 1s, on: system, do: pause}]",), default_name="x")
    assert overridden.faults[0].on == "system"
