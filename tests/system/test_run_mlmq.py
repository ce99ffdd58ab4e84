"""A whole run on MLMQ: nothing lost, every tier accounted for, both brokers inspected, and nothing left behind."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from pyspark.sql import SparkSession

from crescendo.model.verdict import Outcome
from crescendo.record.summary import Summary
from crescendo.report.page import render_report
from whole_runs import judged, launching

QUICK = Path(__file__).parents[2] / "experiments" / "quick" / "mlmq.yml"
SENDERS, RATE, SECONDS = 2, 250, 5
REQUESTS = ("Send", "Dequeue", "Acknowledge")

pytestmark = pytest.mark.timeout(600)  # the first test waits for the run and, when run alone, for a cold Spark


@dataclass(frozen=True)
class Done:
    run_dir: Path
    summary: Summary
    manifest: dict[str, Any]

    def ask(self, table: str, what: str) -> list[tuple[Any, ...]]:
        rows = f"read_parquet('{self.run_dir}/{table}/*.parquet')"
        return duckdb.sql(f"select {what.format(rows)}").fetchall()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Done]:
    """The quick experiment, shortened and on two brokers. Latencies are judged on idle machines only."""
    directory = tmp_path_factory.mktemp("mlmq-run")
    document = yaml.safe_load(QUICK.read_text())
    document["system"]["settings"]["brokers"] = 2
    document["phases"] = {"warmup": "1s", "measure": f"{SECONDS - 1}s", "drain": "60s"}
    document["checks"] = {"lost": 0, "duplicated": 0}
    (directory / "quick.yml").write_text(yaml.safe_dump(document))
    with launching(directory) as launch:
        session = launch.without_analysis(directory / "quick.yml")
        ended = session.finish()
        assert ended.stdout == "sealed\n", ended.stdout + ended.stderr
        yield Done(session.run_dir(), judged(session, spark), session.manifest())


def test_every_message_arrives_once(done: Done) -> None:
    assert done.summary.verdict.outcome is Outcome.PASS, done.summary.verdict
    assert done.summary.total.sent == SENDERS * RATE * SECONDS
    assert done.ask("settled", "outcome, sum(last_seq - first_seq + 1) from {} group by 1") == [
        (1, SENDERS * RATE * SECONDS)
    ]


@pytest.mark.parametrize("request_kind", REQUESTS)
def test_the_tiers_of_a_request_add_up_to_its_time(done: Done, request_kind: str) -> None:
    whole = done.ask("spans", f"count(*), sum(duration_ns), min(value) from {{}} where action = '{request_kind}'")[0]
    tiers = dict(
        done.ask("spans", f"action, sum(duration_ns) from {{}} where action like '{request_kind}/%' group by 1")
    )
    named = {action.partition("/")[2] for action in tiers}
    assert {"network", "receive", "queue wait", "pool wait", "database", "send"} <= named
    assert sum(tiers.values()) == whole[1]
    assert tiers[f"{request_kind}/database"] > 0
    rows = done.ask("tables/spans", f"sum(share) from {{}} where phase = 'measure' and outcome is null "
                    f"and action like '{request_kind}/%'")  # fmt: skip
    assert rows[0][0] == pytest.approx(1.0)


def test_each_span_states_how_many_requests_it_stands_for(done: Done) -> None:
    count, of = done.ask("spans", "count(*), any_value(value) from {} where action = 'Send'")[0]
    assert of > 1, "at this rate not every request asks for its times"
    assert abs(count * of - SENDERS * RATE * SECONDS) <= SENDERS * of


def test_both_brokers_were_used_and_inspected(done: Done) -> None:
    found = dict(done.ask("readings", "entity, max(value) from {} where metric = 'requests_total' "
                          "and entity like 'broker/%/Send/ok' group by 1"))  # fmt: skip
    assert set(found) == {"broker/1/Send/ok", "broker/2/Send/ok"}
    assert all(0 < value <= SENDERS * RATE * SECONDS for value in found.values())


def test_the_report_breaks_requests_down(done: Done) -> None:
    page = render_report(done.run_dir)
    assert "Mean time by tier: " in page
    assert all(f"{kind}/database" in page for kind in REQUESTS)


def test_no_database_is_left_and_the_manifest_says_what_ran(done: Done) -> None:
    facts = done.manifest["system"]
    assert (facts["kind"], facts["settings"]["brokers"]) == ("mlmq", 2)
    plan = json.loads(facts["configuration"]["mlmq.json"])
    assert not Path(plan["data"]).exists()
    assert not (done.run_dir / "system").exists()
