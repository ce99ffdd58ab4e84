"""Do our change points agree with Apache Otava's, the method's best-known implementation, in its own environment?"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crescendo.pipeline.change_points.e_divisive import change_points

OTAVA = "apache-otava==0.8.0"
SCRIPT = """
import json, sys
from otava.analysis import compute_change_points
series = json.load(sys.stdin)
found = []
for each in series:
    points = compute_change_points(each, window_len=50, max_pvalue=0.001)
    points = points[0] if isinstance(points, tuple) else points
    found.append([int(point.index) for point in points])
json.dump(found, sys.stdout)
"""


@pytest.mark.soak
def test_planted_drops_are_found_where_otava_finds_them(tmp_path: Path) -> None:
    environment = tmp_path / "otava"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=300)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", OTAVA]
    subprocess.run(pip, check=True, timeout=1200)
    random = np.random.default_rng(11)
    series, planted = [], []
    for _ in range(40):
        at, drop = int(random.integers(15, 30)), float(random.choice([0.05, 0.10, 0.20]))
        levels = np.where(np.arange(45) < at, 1.0, 1 - drop)
        series.append((1000 * levels * np.exp(random.normal(0, 0.008, 45))).tolist())
        planted.append(at)
    program = [str(environment / "bin" / "python"), "-c", SCRIPT]
    answer = subprocess.run(program, input=json.dumps(series).encode(), capture_output=True, check=True, timeout=600)
    theirs = json.loads(answer.stdout)
    agree = 0
    for values, at, other in zip(series, planted, theirs, strict=True):
        ours = [each.index for each in change_points(np.log(values).tolist())]
        assert any(abs(each - at) <= 1 for each in ours)
        agree += len(ours) == len(other) and all(abs(one - two) <= 1 for one, two in zip(ours, other, strict=True))
    assert agree >= 36  # of 40: extra points near the ends may differ
