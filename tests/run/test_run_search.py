"""Is every try of a search an ordinary run that is judged, kept and reported?"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from crescendo.calibrate.calibration_file import Ceiling, machine_of, save_ceilings
from crescendo.cli.search import exit_code, search_line
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.verdict import Check, Outcome, Verdict
from crescendo.record.manifest import ConnectionRecord, Manifest, PeerRecord, Phase, write_manifest
from crescendo.record.search_result import SEARCH_FILE
from crescendo.record.summary import Ledger, Rate, Summary
from crescendo.run import host_facts
from crescendo.run.search import SearchTrial, at_rate, judge_trial, run_search

SECOND_NS = 10**9
MEASURED_S = 8


def experiment(**search: object) -> Experiment:
    return experiment_from(
        {
            "name": "hunt",
            "workload": [
                {"name": "a", "senders": 3, "rate": 100},
                {"name": "b", "senders": 1, "rate": 700, "address": "queue://b"},
            ],
            "search": {"from": 1000, "to": 8000, "resolution": "10%", **search},
        }
    )


class Systems:
    """Writes the files that a run on a system of this capacity would leave, without running anything."""

    def __init__(
        self,
        capacity: float,
        *,
        fan_out: int = 1,
        outcome: Callable[[float], Outcome] | None = None,
        own_delay_s: float = 0.0,
    ) -> None:
        self._own_delay_s = own_delay_s
        self._capacity = capacity
        self._fan_out = fan_out
        self._outcome = outcome or (lambda _: Outcome.PASS)
        self.runs = 0

    def __call__(self, probe: Experiment, directory: Path) -> SearchTrial:
        self.runs += 1
        rate = sum(group.senders * group.rate for group in probe.workload)
        run_dir = directory / f"run-{self.runs}"
        table = run_dir / "tables" / "throughput"
        table.mkdir(parents=True)
        arrived = round(min(rate, self._capacity)) * self._fan_out
        rows = [
            {"second": second, "role": "receiver", "connection": 0, "messages": arrived, "bytes": 256 * arrived}
            for second in range(1, 1 + MEASURED_S)
        ]
        pq.write_table(pa.Table.from_pylist(rows), table / "part-0.parquet")
        phases = [Phase("warmup", 0, SECOND_NS), Phase("measure", SECOND_NS, (1 + MEASURED_S) * SECOND_NS)]
        connections = [ConnectionRecord(0, "receiver", "receiver-0", "a", "queue://perf", "perf", "s")]
        own = PeerStatistics(own_delay_max_ns=self._own_delay_s * SECOND_NS)
        peers = [PeerRecord("sender-0", "sender", "here", 1, "finished", "", own)]
        manifest = Manifest("r", 1, {}, [], 0, phases=phases, connections=connections, peers=peers)
        write_manifest(run_dir, manifest)
        return SearchTrial(run_dir, self._summary(rate))

    def _summary(self, rate: float) -> Summary:
        outcome = self._outcome(rate)
        sent = round(rate * MEASURED_S)
        ledger = Ledger("total", None, None, sent, sent * self._fan_out, sent, sent, 0, 0, 0, 0, 0, 0, 0)
        check = Check("lost", "== 0", 0.0, 0.0, outcome, [] if outcome is Outcome.PASS else ["a reason"])
        arrived = Rate(rate, rate, min(rate, self._capacity), MEASURED_S * SECOND_NS, 0.0)
        return Summary("r", "sealed", Verdict(outcome, [check]), [], arrived, [], [ledger], 0)


def test_a_try_scales_every_group_and_is_judged_by_the_limits() -> None:
    sought = experiment(limits={"response_p99": "<= 50ms", "backlog": "steady"})
    assert sought.search is not None
    probe = at_rate(sought, sought.search, 5000)
    assert [group.rate for group in probe.workload] == [500, 3500]
    assert probe.checks == {"response_p99": "<= 50ms"}
    assert probe.search is None
    only_backlog = experiment(limits={"backlog": "steady"})
    assert only_backlog.search is not None
    assert at_rate(only_backlog, only_backlog.search, 5000).checks == {"rate": "> 0"}


@pytest.mark.parametrize("fan_out", [1, 3])
def test_a_growing_backlog_in_the_tables_bounds_the_answer(tmp_path: Path, fan_out: int) -> None:
    lines: list[str] = []
    result = run_search(experiment(), tmp_path, Systems(5000, fan_out=fan_out), lines.append)
    answer = result.answer
    assert answer is not None
    assert answer.complete
    assert answer.rate is not None
    assert answer.above is not None
    assert answer.rate <= 5000 * 1.05 < answer.above * 1.05  # within the tolerance, half the resolution
    assert answer.above <= answer.rate * 1.1
    assert exit_code(answer) == 0
    assert f"SEARCH {answer.rate:,.0f} msg/s sustainable · between {answer.rate:,.0f} and" in search_line(result)
    failed = [tried for tried in result.tries if tried.outcome is Outcome.FAIL]
    assert failed[0].rate == 8000
    assert failed[0].backlog_growth == pytest.approx(3000)
    assert any(line.endswith("fail (backlog: it grows by 3,000 messages per second)") for line in lines)
    assert [tried.run for tried in result.tries] == [f"run-{n}" for n in range(1, len(result.tries) + 1)]
    assert json.loads((tmp_path / SEARCH_FILE).read_text())["answer"]["rate"] == answer.rate


def test_a_backlog_that_our_own_delay_could_explain_proves_nothing(tmp_path: Path) -> None:
    """A sender that was up to two seconds late in eight may cause a growth of 38 % of the rate, and no more."""
    result = run_search(experiment(), tmp_path / "late", Systems(5000, own_delay_s=2), lambda _: None)
    assert result.answer is not None
    assert not result.answer.complete
    assert [(tried.rate, tried.outcome.value) for tried in result.tries[3:]] == [(8000, "invalid")] * 3
    assert result.tries[-1].reasons[-1] == "own delay could explain 3,048 of them"
    slow = run_search(experiment(), tmp_path / "slow", Systems(5000, own_delay_s=0.02), lambda _: None)
    assert slow.answer is not None
    assert slow.answer.complete


def test_a_backlog_without_a_limit_is_not_judged(tmp_path: Path) -> None:
    result = run_search(experiment(limits={"lost": 0}), tmp_path, Systems(500), lambda _: None)
    assert result.answer is not None
    assert (result.answer.rate, result.answer.above) == (8000, None)
    assert "at least 8,000 msg/s" in search_line(result)


def test_a_failed_try_says_what_was_measured(tmp_path: Path) -> None:
    sought = experiment()
    assert sought.search is not None
    trial = Systems(10_000)(at_rate(sought, sought.search, 1000), tmp_path)
    late = Check("response_p99", "<= 100ms", 412e6, 100e6, Outcome.FAIL)
    failed = msgspec.structs.replace(trial.summary, verdict=Verdict(Outcome.FAIL, [late]))
    tried = judge_trial(SearchTrial(trial.run_dir, failed), sought.search, 1000)
    assert tried.reasons == ["response_p99: 412 ms, wanted <= 100ms"]


def test_an_invalid_run_is_repeated_and_reported_and_never_a_pass(tmp_path: Path) -> None:
    systems = Systems(10_000, outcome=lambda rate: Outcome.INVALID if rate > 3000 else Outcome.PASS)
    result = run_search(experiment(), tmp_path, systems, lambda _: None)
    assert result.answer is not None
    assert not result.answer.complete
    assert exit_code(result.answer) == 3
    assert [tried.outcome for tried in result.tries if tried.rate > 3000] == [Outcome.INVALID] * 3
    assert result.tries[-1].reasons == ["lost: a reason"]
    assert "SEARCH unknown" in search_line(result)
    assert "3 of them invalid" in search_line(result)


def test_a_lost_run_is_an_invalid_try(tmp_path: Path) -> None:
    def lost(_probe: Experiment, _directory: Path) -> SearchTrial:
        raise LostError("the connection to the control broker was lost")

    result = run_search(experiment(), tmp_path, lost, lambda _: None)
    assert [(tried.outcome, tried.reasons) for tried in result.tries] == [
        (Outcome.INVALID, ["the connection to the control broker was lost"])
    ] * 3


def test_a_configuration_error_ends_the_search_at_once(tmp_path: Path) -> None:
    def refused(_probe: Experiment, _directory: Path) -> SearchTrial:
        raise ConfigError("connection refused")

    with pytest.raises(ConfigError):
        run_search(experiment(), tmp_path, refused, lambda _: None)


def test_an_interrupted_search_reports_what_it_knows(tmp_path: Path) -> None:
    systems = Systems(10_000)

    def until_interrupted(probe: Experiment, directory: Path) -> SearchTrial | None:
        return systems(probe, directory) if systems.runs < 2 else None

    result = run_search(experiment(confirm="1 of 1"), tmp_path, until_interrupted, lambda _: None)
    assert result.answer is not None
    assert (result.answer.rate, result.answer.complete, result.answer.reason) == (2000, False, "interrupted")
    assert "unknown (2,000 msg/s passes)" in search_line(result)


def test_a_system_that_never_meets_the_limits_fails(tmp_path: Path) -> None:
    result = run_search(experiment(), tmp_path, Systems(10), lambda _: None)
    assert exit_code(result.answer) == 1
    assert "under 1,000 msg/s" in search_line(result)


@pytest.mark.timeout(400)
def test_a_real_search_keeps_its_runs_and_reports_the_generators_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.delenv("CRESCENDO_STATE", raising=False)
    ceilings = [
        Ceiling("amqp10", role, 256, rate, rate, rate, 3) for role, rate in (("sender", 40e3), ("receiver", 10e3))
    ]
    save_ceilings(machine_of(host_facts.host(), host_facts.versions()), ceilings, 1)
    path = tmp_path / "hunt.yml"
    document: dict[str, Any] = {
        "workload": {"rate": 100},
        "phases": {"warmup": "1s", "measure": "6s"},
        "search": {"from": 400, "to": 400, "confirm": "1 of 1", "limits": {"lost": 0, "backlog": "steady"}},
    }
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("crescendo")), "run", str(path), "--out", str(tmp_path / "runs"), "--json"],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["answer"]["rate"], result["answer"]["above"]) == (400, None)
    assert [tried["rate"] for tried in result["tries"]] == [400]
    [directory] = (tmp_path / "runs").iterdir()
    assert json.loads((directory / SEARCH_FILE).read_text()) == result
    assert "at least 400 msg/s" in (directory / "search.html").read_text(encoding="utf-8")
    for tried in result["tries"]:
        run_dir = directory / tried["run"]
        manifest = json.loads((run_dir / "manifest.json").read_text())
        assert manifest["experiment"]["workload"][0]["rate"] == tried["rate"]
        assert (run_dir / "report.html").exists()
        summary = json.loads((run_dir / "summary.json").read_text())
        # The receiver's ceiling is the lower one: 400 of 10,000.
        assert summary["ceiling_percent"] == pytest.approx(tried["rate"] / 100, rel=0.1)
