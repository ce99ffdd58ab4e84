"""What does somebody wait for, who wants a first number of his own broker?"""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.loopback import LOOPBACK
from whole_runs import Launcher

WANTED_S = 3.0
"""From the command to its first number. It needs about 1.7: a second of load, and starting three processes."""


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RunningInstance]:
    instance = start(LOOPBACK, {}, directory=tmp_path / "relay", on_fork=die_with_parent())
    yield instance
    instance.stop()


@pytest.mark.quiet  # seconds are counted
def test_the_first_number_of_try_waits_for_nothing_but_the_first_second_of_load(
    launch: Launcher, relay: RunningInstance
) -> None:
    """Spark takes longer than everything before that number; it is needed for the verdict only."""
    started_s = time.monotonic()
    session = launch("try", relay.url, "--rate", "500", "--for", "20s")
    lines = []
    for line in session.process.stderr or ():
        lines.append(line)
        if re.search(r"receiving [1-9]", line):  # a busy machine may be slower than the rate
            break
    waited_s = time.monotonic() - started_s
    spark = [process for process in session.family() if "org.apache.spark" in " ".join(process.cmdline())]
    session.process.send_signal(signal.SIGINT)
    ended = session.finish(30)
    assert ended.returncode == 3, lines
    assert "VERDICT invalid · interrupted" in ended.stdout
    assert not any("Spark" in line for line in lines), lines
    assert not spark
    assert waited_s < WANTED_S, lines
