"""Do live tables show a run in progress, is the run marked as observed, and is nothing left behind?"""

import json
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import msgspec
import pytest

from crescendo.cli.run import run
from crescendo.model.errors import ConfigError
from crescendo.pipeline.live.snapshot import Snapshot
from crescendo.record.manifest import Clock, Manifest, write_manifest
from crescendo.record.schema import SENT
from crescendo.record.writer import Recorder
from documented import commands
from whole_runs import Launcher


@pytest.mark.timeout(500)  # two JVMs next to a run, perhaps on a busy machine
def test_a_run_with_live_tables_shows_every_second_and_is_marked_observed(
    launch: Launcher, experiment: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (documented,) = [item.words for item in commands() if item.where == "docs/live.md" and "--live" in item.words]
    mine = {"experiment.yml": str(experiment(phases={"measure": "4s"}, checks={"lost": 0}))}
    session = launch(*(mine.get(word, word) for word in documented))
    done = session.finish(timeout_s=450)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT pass" in done.stdout
    query = f"select count(*) from read_parquet('{session.run_dir()}/received/*.parquet')"  # noqa: S608
    ((messages,),) = duckdb.sql(query).fetchall()
    shown = re.findall(r"\d\d:\d\d:\d\d  sent ([\d,]+)/s  received ([\d,]+)/s .*response p50", done.stderr)
    assert len(shown) >= 5, done.stderr
    sums = [sum(int(line[column].replace(",", "")) for line in shown) for column in (0, 1)]
    assert sums == [messages, messages]
    assert f"live tables: sent {messages:,}, received {messages:,}" in done.stderr
    manifest = session.manifest()
    assert manifest["state"] == "sealed"
    assert "observed" not in manifest["host"], "a sealed manifest is not written again"
    assert "live tables" in json.loads((session.run_dir() / "observed.json").read_text())["note"]
    assert "by live tables, on" in (session.run_dir() / "report.html").read_text()
    assert "--live" in manifest["command"]
    assert list(temporary.iterdir()) == []


def test_ctrl_c_ends_a_watch_and_leaves_nothing_behind(
    launch: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    run_dir = tmp_path / "growing"
    recorder = Recorder(run_dir, "sender-0")
    now_ns = time.time_ns()
    recorder.append(SENT, 3, 0, range(3), 1, now_ns, now_ns, 100)
    recorder.close()
    host = {"name": socket.gethostname()}
    document = {"name": "growing", "workload": [{"senders": 1, "receivers": 1}]}
    write_manifest(run_dir, Manifest("growing", 1, document, [], now_ns, host=host, clocks=[Clock("here", 0)]))
    session = launch("watch", str(run_dir), "--json")
    glance = msgspec.json.decode(session.read_until('"sent":3'), type=Snapshot)
    assert (glance.run, glance.account.sent, glance.account.parts, glance.ended) == ("growing", 3, 1, False)
    session.process.send_signal(signal.SIGINT)
    done = session.finish()
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert list(temporary.iterdir()) == []
    assert json.loads((run_dir / "manifest.json").read_text())["state"] == "incomplete"


def test_live_tables_of_a_search_are_rejected_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "how-much.yml"
    path.write_text("search: {from: 1000, to: 2000, limits: {lost: 0}}\nphases: {measure: 10s}\n")
    with pytest.raises(ConfigError, match=r"--live: it follows a single run, but .*how-much.yml is a search over many"):
        run(path, out=tmp_path / "runs", live=True)
    assert not (tmp_path / "runs").exists()
