"""Does the verb `model` put the right model next to measured runs? The runs are planted from textbook formulas."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crescendo.cli.main import app
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.pipeline.queueing.measured_network import measured_load
from crescendo.record.tables import SPAN_HISTOGRAM, SPANS

SAMPLE = Path(__file__).parents[1] / "samples" / "version-0.1" / "baseline"
REQUEST = "CSndReq#SendMessage"
DATABASE_S, NETWORK_S, WORKER_S, THINK_S, SERVERS = 0.004, 0.002, 0.001, 0.010, 4


def repair_model(clients: int, servers: int, service_s: float, away_s: float) -> tuple[float, float]:
    """Throughput and residence at the only queue of a closed system, from its balance equations (M/M/m//N)."""
    weights = [1.0]
    for count in range(1, clients + 1):
        weights.append(weights[-1] * (clients - count + 1) * service_s / away_s / min(count, servers))
    total = sum(weights)
    busy = sum(weight * min(count, servers) for count, weight in enumerate(weights)) / total
    throughput = busy / service_s
    return throughput, sum(weight * count for count, weight in enumerate(weights)) / total / throughput


def planted(directory: Path, clients: int, **changes: object) -> Path:
    """A run of this many clients for ten seconds on one broker with four connections and very many workers."""
    run = directory / f"clients-{clients}"
    shutil.copytree(SAMPLE, run, ignore=shutil.ignore_patterns("tables"))
    throughput, residence_s = repair_model(clients, SERVERS, DATABASE_S, NETWORK_S + WORKER_S + THINK_S)
    group = {"name": "one", "kind": "one-way", "count": clients, **changes}
    settings = {"brokers": 1, "workers": 500, "connections": SERVERS}
    experiment = experiment_from(
        {"name": "m", "system": {"kind": "mlmq", "settings": settings}, "clients": group, "phases": {"measure": "10s"}}
    )
    manifest = json.loads((run / "manifest.json").read_text())
    manifest |= {"run": run.name, "experiment": to_document(experiment)}
    (run / "manifest.json").write_text(json.dumps(manifest))
    summary = json.loads((run / "summary.json").read_text())
    summary["rate"]["duration_ns"] = 10 * 10**9
    (run / "summary.json").write_text(json.dumps(summary))
    count = round(throughput * 10)
    tiers = {
        "": NETWORK_S + WORKER_S + residence_s, "/network": NETWORK_S, "/receive": WORKER_S, "/database": DATABASE_S,
        "/pool wait": residence_s - DATABASE_S, "/wait for a message": 0.5,
    }  # fmt: skip
    rows = [_span_row(REQUEST + name, count, seconds) for name, seconds in tiers.items()]
    _table(run, SPANS.name, rows)
    sums = {"count": count, "sum_ns": 1, "min_ns": 1, "max_ns": 1, "second": 0, "phase": "measure", "outcome": "ok"}
    _table(run, SPAN_HISTOGRAM.name, [sums | {"action": f"{REQUEST}/database", "bucket": 4000}])
    return run


def _span_row(action: str, count: int, seconds: float) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(SPANS.column_names, 1)
    row |= {"phase": "measure", "action": action, "outcome": None, "count": count, "share": 1.0, "negative": 0}
    return row | {"mean_ns": seconds * 1e9, "total_ns": seconds * 1e9 * count}


def _table(run: Path, name: str, rows: list[dict[str, object]]) -> None:
    folder = run / "tables" / name
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")


def model(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert int(app(["model", *words, "--json"], standalone_mode=False) or 0) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_the_model_predicts_runs_that_follow_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(planted(tmp_path, clients)) for clients in (40, 2, 10)]
    document = model(*runs, "--what-if", "database.servers=8", "--out", str(tmp_path / "m.html"), capsys=capsys)
    rows = document["rows"]
    assert isinstance(rows, list)
    assert [row["clients"] for row in rows] == [2, 10, 40]
    away_s = NETWORK_S + WORKER_S + THINK_S
    for row in rows:
        assert row["predicted_throughput"] == pytest.approx(row["throughput"], rel=0.01)
        assert row["predicted_response_ns"] == pytest.approx(row["response_ns"], rel=0.02)
        more, residence_s = repair_model(row["clients"], 8, DATABASE_S, away_s)
        assert row["changed_throughput"] == pytest.approx(more, rel=0.01)
        assert row["changed_response_ns"] == pytest.approx((residence_s + NETWORK_S + WORKER_S) * 1e9, rel=0.02)
        assert row["bottleneck"] == "database"
        assert row["utilization"]["database"] == pytest.approx(row["throughput"] * DATABASE_S / SERVERS, rel=1e-6)
    assert rows[2]["open_wait_ns"] is None or rows[2]["open_wait_ns"] > 0
    page = (tmp_path / "m.html").read_text(encoding="utf-8")
    assert "database.servers=8" in page
    assert 'data-chart="throughput"' in page


def test_the_rest_of_the_cycle_is_thinking(tmp_path: Path) -> None:
    load = measured_load(planted(tmp_path, 10))
    assert load.think_s == pytest.approx(THINK_S, rel=0.02)
    assert load.stations["network"].is_delay
    assert (load.stations["database"].servers, load.stations["workers"].servers) == (SERVERS, 500)


def test_what_no_model_can_describe_is_refused_with_the_cure(tmp_path: Path) -> None:
    run = planted(tmp_path, 4)
    for change, answer in (
        ("disk.servers=2", "change workers.servers, database.servers"),
        ("network.servers=2", "not a part of this model"),
        ("database.servers=0", "a number above 0"), ("database.servers=many", "a number above 0"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=answer):
            app(["model", str(run), "--what-if", change], standalone_mode=False)
    with pytest.raises(ConfigError, match="this run has none"):
        app(["model", str(SAMPLE), "--out", str(tmp_path / "x.html")], standalone_mode=False)
    ramp = planted(tmp_path / "ramp", 4, group_size=2, group_delay="1s")
    with pytest.raises(ConfigError, match="constant number"):
        app(["model", str(ramp)], standalone_mode=False)
