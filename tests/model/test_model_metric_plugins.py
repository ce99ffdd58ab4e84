"""Are metrics of other packages found, and are broken ones named and skipped?"""

import os
import subprocess
import sys
from pathlib import Path

from check_plugins import install_check_plugins

SCRIPT = """
import sys
from crescendo.model.experiment_file import experiment_from
from crescendo.model.metrics import METRICS, find_metric, format_report_value, format_value, metric_of, metric_position

assert metric_of("lost") is METRICS["lost"]
assert "toy_checks" not in sys.modules  # our own metrics are found without the others
experiment = experiment_from({"name": "x", "checks": {"busiest_receiver": "<= 0.9"}})
assert list(experiment.effective_checks) == ["busiest_receiver"]
assert metric_position("lost") < len(METRICS) <= metric_position("busiest_receiver")
print(format_value("busiest_receiver", 0.256), format_report_value("busiest_receiver", 0.256))
assert find_metric("broken") is None and find_metric("not_a_metric") is None
try:
    experiment_from({"name": "x", "checks": {"busiest_receiver": "<= 5ms"}})
except Exception as err:
    print(err)
try:
    experiment_from({"name": "x", "checks": {"broken": 0}})
except Exception as err:
    print(err)
"""


def test_metrics_of_a_package_are_checked_and_written_like_ours_and_broken_ones_are_named(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(install_check_plugins(tmp_path / "site"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    texts, unit, unknown = done.stdout.splitlines()
    assert texts == "26% 25.6%"
    assert "busiest_receiver: '<= 5ms' does not fit; it takes a share, such as '<= 0.9'" in unit
    assert "no metric is called 'broken'" in unknown
    assert "busiest_receiver, " in unknown  # among those that can be used
    assert done.stderr.count("'broken' of toy-checks 1.2") == 1
    assert done.stderr.count("'not_a_metric'") == 1
