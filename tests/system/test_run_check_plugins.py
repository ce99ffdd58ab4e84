"""Is a check of another package judged in a whole run, and shown like our own?"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from check_plugins import install_check_plugins
from whole_runs import Launcher


def test_a_check_of_a_package_is_in_terminal_summary_and_report_and_a_faulty_one_is_invalid(
    launch: Launcher, experiment: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install_check_plugins(tmp_path / "site")))
    checks = {"lost": 0, "busiest_receiver": "<= 1", "unlucky": 0}
    session = launch("run", str(experiment(phases={"measure": "3s"}, checks=checks)))
    done = session.finish()
    assert done.returncode == 3, done.stdout + done.stderr
    assert "plugin 'broken' of toy-checks 1.2" in done.stderr
    assert "pass    lost 0, wanted == 0" in done.stdout
    assert "pass    busiest_receiver " in done.stdout
    assert "%, wanted <= 1" in done.stdout
    fault = "unlucky cannot be computed: ZeroDivisionError: division by zero"
    assert f"invalid unlucky not measured, wanted == 0 ({fault})" in done.stdout

    summary = json.loads((session.run_dir() / "summary.json").read_text())
    judged = {check["metric"]: check for check in summary["verdict"]["checks"]}
    assert {name: check["outcome"] for name, check in judged.items()} == {
        "lost": "pass", "busiest_receiver": "pass", "unlucky": "invalid",
    }  # fmt: skip
    (receiver,) = [peer for peer in session.manifest()["peers"] if peer["role"] == "receiver"]
    assert judged["busiest_receiver"]["value"] == receiver["statistics"]["busy_share"]
    page = (session.run_dir() / "report.html").read_text()
    assert "Busiest receiver" in page
    assert f"{receiver['statistics']['busy_share']:.1%}" in page
