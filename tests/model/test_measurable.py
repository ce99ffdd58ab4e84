"""What a single run cannot have by its plan is refused before it begins."""

from typing import Any

import pytest

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from
from crescendo.model.measurable import check_planned

FAULT = {"at": "measure + 1s", "do": "restart"}


def planned(workload: dict[str, Any], checks: dict[str, Any], measure: str = "10s", **keys: Any) -> Experiment:
    document = {"name": "e", "workload": workload, "checks": checks, "phases": {"measure": measure}, **keys}
    return experiment_from(document)


@pytest.mark.parametrize(
    ("workload", "measure", "keys"),
    [
        ({"rate": 98, "senders": 1}, "10s", {}),
        ({"rate": 49, "senders": 2}, "10s", {}),
        ({"rate": 1000, "senders": 2}, "450 messages", {}),
        ({"rate": 300, "senders": 1, "address": "topic://t", "receivers": 3}, "1s", {}),
        ({"rate": 980, "senders": 1}, "2s", {"profile": {"kind": "steps", "steps": [{"factor": 0.5, "lasts": "60s"}]}}),
    ],
)
def test_a_percentile_of_too_few_messages_is_refused(workload: Any, measure: str, keys: Any) -> None:
    """Ten of a thousand messages are beyond the 99th percentile."""
    with pytest.raises(
        ConfigError, match=r"e: checks.response_p99: .* so 1,000 messages, and at most \d{3} are planned"
    ):
        check_planned(planned(workload, {"response_p99": "<= 1s"}, measure, **keys), "e")


@pytest.mark.parametrize(
    ("workload", "metric", "keys"),
    [
        ({"rate": 100, "senders": 1}, "response_p99", {}),
        ({"rate": 10, "senders": 1}, "response_p90", {}),
        ({"rate": 1, "senders": 1}, "response_max", {}),
        ({"rate": 0, "senders": 1}, "transfer_p99.99", {}),
        ({"rate": 34, "senders": 1, "address": "topic://t", "receivers": 3}, "response_p99", {}),
        ({"rate": 98, "senders": 1}, "response_p99", {"profile": {"kind": "poisson"}}),
    ],
)
def test_what_may_have_enough_samples_is_allowed(workload: Any, metric: str, keys: Any) -> None:
    check_planned(planned(workload, {metric: "<= 1s"}, **keys), "e")


def test_a_slice_is_refused_by_its_own_messages() -> None:
    groups: Any = [{"name": "few", "rate": 10, "address": "queue://few"}, {"name": "many", "address": "queue://many"}]
    check_planned(planned(groups, {"response_p99": "<= 1s", "many.response_p99": "<= 1s"}), "e")
    with pytest.raises(ConfigError, match=r"checks.few.response_p99"):
        check_planned(planned(groups, {"few.response_p99": "<= 1s"}), "e")


def test_recovery_from_nothing_is_refused() -> None:
    for metric in ("recovery_time", "load.catch_up_time", "detection_time"):
        checks = {metric: "<= 1s"}
        with pytest.raises(ConfigError, match=f"checks.{metric}: no fault is planned"):
            check_planned(planned({"name": "load"}, checks), "e")
        check_planned(planned({"name": "load"}, checks, faults=[FAULT]), "e")
    check_planned(planned({}, {"outage": "<= 1s"}), "e")
