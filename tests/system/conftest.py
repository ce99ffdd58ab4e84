"""Whole runs, each test in its own directory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from whole_runs import Launcher, launching, write_experiment


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launcher]:
    """Start `crescendo ARGUMENTS --out …`; afterwards assert that none of its processes is left."""
    with launching(tmp_path) as launcher:
        yield launcher


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., Path]:
    """Write an experiment file: a small steady load on the relay, changed by keywords."""

    def write(**changes: Any) -> Path:
        return write_experiment(tmp_path / "trial.yml", **changes)

    return write
