"""Whole runs of MLMQ clients: one in which every message is accounted for, and one from which a message is stolen."""

import time
from pathlib import Path
from typing import Any

import duckdb
import yaml
from pyspark.sql import SparkSession

from crescendo.client.mlmq import brokers_of
from crescendo.mlmq.client import Client, Query
from crescendo.model.verdict import Outcome
from crescendo.systems.instance import RunningInstance
from whole_runs import Launcher, judged

CLIENTS = [
    {"name": "relay", "kind": "one-way", "count": 6, "wait": "2ms"},
    {"name": "pairs", "kind": "paired", "count": 4, "wait": "2ms"},
    {"name": "readers", "kind": "consumer", "count": 3, "wait": "30ms"},
    {"name": "writers", "kind": "producer", "count": 2, "wait": "20ms"},
    {"name": "alone", "kind": "simple-send", "count": 2, "messages": 5},
]


def written(path: Path, mlmq: RunningInstance, **changes: Any) -> Path:
    document = {
        "name": "clients",
        "system": {"url": mlmq.endpoints["mlmq"]},
        "clients": CLIENTS,
        "phases": {"warmup": "500ms", "measure": "2s", "drain": "6s"},
        **changes,
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_clients_in_two_processes_take_part_like_senders_and_receivers(
    launch: Launcher, mlmq: RunningInstance, spark: SparkSession, tmp_path: Path
) -> None:
    session = launch.without_analysis(written(tmp_path / "clients.yml", mlmq, peers={"clients": 2}))
    done = session.finish()
    assert done.stdout.strip() == "sealed", done.stderr
    summary = judged(session, spark)
    assert summary.verdict.outcome is Outcome.PASS, summary.verdict
    assert {check.metric: check.value for check in summary.verdict.checks} == {
        "conservation": 0.0,
        "lost": 0.0,
        "duplicated": 0.0,
    }
    assert summary.total.delivered == summary.total.sent > 0
    peers = {peer["id"]: peer for peer in session.manifest()["peers"]}
    assert {peer["role"] for peer in peers.values()} == {"client"}
    assert {peer["ended"] for peer in peers.values()} == {"finished"}
    useful = sum(peer["statistics"]["useful"] for peer in peers.values())
    spans = f"read_parquet('{session.run_dir()}/spans/*.parquet')"
    wholes = f"select count(*), sum(value) from {spans} where action like 'CSndReq#%' and action not like '%/%'"  # noqa: S608
    ((requests, valued),) = duckdb.sql(wholes).fetchall()
    assert valued == useful
    assert requests == sum(peer["statistics"]["requests"] for peer in peers.values())
    # A message that is sent and received takes two requests, unless one was given up and was served all the same.
    assert 2 * summary.total.sent - (requests - useful) <= useful <= 2 * summary.total.sent


def test_a_message_stolen_by_another_client_fails_the_run(
    launch: Launcher, mlmq: RunningInstance, spark: SparkSession, tmp_path: Path
) -> None:
    session = launch.without_analysis(written(tmp_path / "clients.yml", mlmq))
    session.wait_for_measure()
    with Client("thief", brokers_of(mlmq.endpoints["mlmq"])) as thief:
        thief.register()
        found = thief.lookup_client_queue(f"public-{session.manifest()['tag']:08x}")
        assert found is not None
        deadline = time.monotonic() + 30
        while thief.dequeue_message(Query(queue=found.queue), wait_s=1) is None:
            assert time.monotonic() < deadline
        thief.deregister()
    assert session.finish().returncode == 0
    summary = judged(session, spark)
    assert summary.verdict.outcome is Outcome.FAIL, summary.verdict
    failed = {check.metric: check.value for check in summary.verdict.checks if check.outcome is Outcome.FAIL}
    assert failed == {"conservation": 1.0, "lost": 1.0}
    assert summary.total.lost_acknowledged == 1
    ((detail,),) = duckdb.sql(
        f"select detail from read_parquet('{session.run_dir()}/events/*.parquet') where kind = 'conservation'"  # noqa: S608
    ).fetchall()
    assert "was stored and never received" in detail
