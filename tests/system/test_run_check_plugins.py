"""Is a check of another package judged in a whole run, and shown like our own?"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from check_plugins import install_check_plugins
from crescendo.cli.terminal import EXIT_CODES, print_verdict
from crescendo.report.page import write_report
from installed_package import forget_packages
from whole_runs import Launcher, judged


def test_a_check_of_a_package_is_in_terminal_summary_and_report_and_a_faulty_one_is_invalid(
    launch: Launcher,
    experiment: Callable[..., Path],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = install_check_plugins(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(site))
    checks = {"lost": 0, "busiest_receiver": "<= 1", "unlucky": 0}
    session = launch.without_analysis(experiment(phases={"measure": "1s"}, checks=checks))
    done = session.finish()
    assert done.stdout.split() == ["sealed"], done.stderr
    assert "plugin 'broken' of toy-checks 1.2" in done.stderr

    monkeypatch.syspath_prepend(site)  # judged in this process, because another Spark would cost seconds
    forget_packages()
    try:
        verdict = judged(session, spark)
        page = write_report(session.run_dir()).read_text()
        print_verdict(verdict)
    finally:
        forget_packages()
        sys.modules.pop("toy_checks", None)
    assert EXIT_CODES[verdict.verdict.outcome] == 3
    printed = capsys.readouterr().out
    assert "pass    lost 0, wanted == 0" in printed
    assert "pass    busiest_receiver " in printed
    assert "%, wanted <= 1" in printed
    fault = "unlucky cannot be computed: ZeroDivisionError: division by zero"
    assert f"invalid unlucky not measured, wanted == 0 ({fault})" in printed

    summary = json.loads((session.run_dir() / "summary.json").read_text())
    found = {check["metric"]: check for check in summary["verdict"]["checks"]}
    assert {name: check["outcome"] for name, check in found.items()} == {
        "lost": "pass", "busiest_receiver": "pass", "unlucky": "invalid",
    }  # fmt: skip
    (receiver,) = [peer for peer in session.manifest()["peers"] if peer["role"] == "receiver"]
    assert found["busiest_receiver"]["value"] == receiver["statistics"]["busy_share"]
    assert "Busiest receiver" in page
    assert f"{receiver['statistics']['busy_share']:.1%}" in page
