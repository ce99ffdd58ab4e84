"""Which verdict follows from the conservation findings of the clients? No Spark: values in, verdict out."""

from typing import Any

import pytest

from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record.manifest import Clock, Manifest, PeerRecord, State
from crescendo.record.summary import Ledger, Rate

EXPERIMENT = experiment_from(
    {
        "name": "e",
        "system": {"kind": "mlmq"},
        "clients": {"name": "relay", "kind": "one-way", "count": 8},
        "peers": {"clients": 2},
    }
)
FINDINGS = {"violations": 0.0, "unresolved": 0.0, "stored": 500.0, "busy_share": 0.3}


def process(number: int, ended: str = "finished", **statistics: float) -> PeerRecord:
    return PeerRecord(f"client-{number}", "client", "here", 1, ended, "", PeerStatistics(**FINDINGS | statistics))


def judge(*peers: PeerRecord, **counts: int) -> tuple[str, dict[str, str]]:
    fields: dict[str, Any] = dict.fromkeys(Ledger.__struct_fields__[3:], 0)
    total = Ledger("total", None, None, **(fields | {"sent": 1000, "owed": 1000, "delivered": 1000} | counts))
    manifest = Manifest(
        run="r", tag=1, experiment=to_document(EXPERIMENT), command=[], started_ns=0, state=State.SEALED,
        clocks=[Clock("here", 0)], peers=list(peers),
    )  # fmt: skip
    evidence = Evidence(
        manifest=manifest,
        experiment=EXPERIMENT,
        damaged={},
        unlisted=0,
        total=total,
        rate=Rate(0.0, 100.0, 100.0, 10**10, 0.0),
        latency={},
    )
    _, verdict = verdict_of(evidence)
    return verdict.outcome.value, {check.metric: check.outcome.value for check in verdict.checks}


def test_a_run_without_findings_passes() -> None:
    assert judge(process(0), process(1)) == ("pass", {"conservation": "pass", "lost": "pass", "duplicated": "pass"})


def test_one_violation_fails_the_run_even_when_other_messages_are_unresolved() -> None:
    assert judge(process(0, violations=1), process(1))[0] == "fail"
    assert judge(process(0, violations=1), process(1, unresolved=3))[1]["conservation"] == "fail"


def test_unresolved_messages_make_conservation_and_lost_invalid() -> None:
    outcome, checks = judge(process(0), process(1, unresolved=2), lost_acknowledged=2)
    assert outcome == "invalid"
    assert checks == {"conservation": "invalid", "lost": "invalid", "duplicated": "pass"}


@pytest.mark.parametrize("missing", ["violations", "unresolved"])
def test_missing_findings_are_invalid(missing: str) -> None:
    without = {key: value for key, value in FINDINGS.items() if key != missing}
    silent = PeerRecord("client-1", "client", "here", 1, "finished", "", PeerStatistics(**without))
    assert judge(process(0), silent)[1]["conservation"] == "invalid"
    assert judge(process(0))[1]["conservation"] == "invalid"  # nothing is known about the second process


def test_a_lost_process_is_never_a_pass() -> None:
    assert judge(process(0), process(1, ended="lost"))[0] == "invalid"


def test_a_ledger_finding_fails_the_run_even_without_client_findings() -> None:
    assert judge(process(0), process(1), lost_acknowledged=1)[0] == "fail"
    assert judge(process(0), process(1), duplicated=1)[0] == "fail"
