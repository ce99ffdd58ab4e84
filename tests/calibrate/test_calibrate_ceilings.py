"""Does `crescendo calibrate` measure in real processes, and reject counts that do not add up?"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from crescendo.calibrate import ceilings
from crescendo.calibrate.ceilings import MAX_SIZE, check, measure
from crescendo.calibrate.engine_trial import StopControl, TrialResult
from crescendo.calibrate.null_process import NullServerCounts
from crescendo.model.errors import ConfigError, LostError

MARK = "CRESCENDO_TEST_MARK"


def crescendo(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    """Run the command; every process that it starts inherits the mark."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("crescendo")), *arguments],
        env={**os.environ, "XDG_STATE_HOME": str(state), "CRESCENDO_STATE": "", MARK: str(state)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _code_for(found: list[dict[str, float]]) -> int:
    """3 if our own stalls make up over a tenth of any: the machine may be busy."""
    return 3 if any(one["without_stalls"] - one["rate"] > 0.1 * one["rate"] for one in found) else 0


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def test_ctrl_c_leaves_neither_a_process_nor_a_file(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    calibrating = subprocess.Popen(
        [sys.executable, "-m", "crescendo.cli.main", "calibrate", "mqtt", "--size", "256", "--seconds", "10"],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TMPDIR": str(temporary), MARK: str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline_s = time.monotonic() + 60
    while not list(temporary.rglob("journal")):  # a trial records
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    os.killpg(calibrating.pid, signal.SIGINT)
    _, stderr = calibrating.communicate(timeout=60)
    assert calibrating.returncode == 3, stderr
    assert stderr.endswith("crescendo: interrupted\n")
    assert "Traceback" not in stderr
    assert list(temporary.iterdir()) == []
    assert not marked(str(tmp_path))


def test_results_are_printed_and_saved_and_no_process_stays_behind(tmp_path: Path) -> None:
    done = crescendo("calibrate", "stomp", "--size", "256", "--seconds", "0.1", "--json", state=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == _code_for(report["ceilings"]), done.stderr
    assert {(one["protocol"], one["role"], one["size"]) for one in report["ceilings"]} == {
        ("stomp", role, 256) for role in ("sender", "receiver")
    }
    for one in report["ceilings"]:
        assert 0 < one["lowest"] <= one["rate"] <= one["highest"]
        assert one["turns"] == 3
    assert report["machine"]["cores"] == os.cpu_count()
    saved = json.loads(Path(report["path"]).read_text())
    assert Path(report["path"]).is_relative_to(tmp_path)
    assert sorted(saved["ceilings"], key=str) == sorted(report["ceilings"], key=str)
    assert not marked(str(tmp_path))


def test_the_table_names_protocol_role_and_size(tmp_path: Path) -> None:
    done = crescendo("calibrate", "mqtt", "--size", "64", "--seconds", "0.05", state=tmp_path)
    assert done.returncode == (3 if "doubtful" in done.stdout else 0), done.stderr
    rows = [line.split()[:3] for line in done.stdout.splitlines()]
    assert ["mqtt", "sender", "64"] in rows
    assert ["mqtt", "receiver", "64"] in rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["smtp"],
            "no protocol is called 'smtp'; did you mean 'stomp'? known: amqp10, amqp091, stomp, mqtt, openwire, core",
        ),
        (["mqtt", "--size", "8"], "--size 8: a size for calibration is 32 to 60,000 bytes"),
        (["mqtt", "--seconds", "0"], "--seconds 0: a trial takes more than 0 and at most 10 seconds"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = crescendo("calibrate", *arguments, state=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"crescendo: {message}\n")


@pytest.mark.parametrize(("role", "size"), [("sender", MAX_SIZE), ("receiver", MAX_SIZE), ("sender", 32)])
def test_the_smallest_and_the_largest_size_can_be_measured(role: str, size: int) -> None:
    check(["amqp10"], [size], 1.0)
    assert measure("amqp10", role, size, seconds=0.5, trials=1, on_fork=None).rate > 0
    with pytest.raises(ConfigError):
        check(["amqp10"], [size + 1 if size == MAX_SIZE else size - 1], 1.0)


def test_a_ceiling_measured_while_our_loop_stood_still_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three trials stood still for a fifth of their time; one did not, and three that did not are sound."""
    calm, stalled = TrialResult(1000, 1.0, 0.5, 1.0, 1), TrialResult(800, 1.0, 0.5, 1.0, 1, stalled_seconds=0.2)
    counts = NullServerCounts(octets=1000 * 256)
    for results, doubtful in (([stalled, calm, stalled], True), ([calm, stalled, calm], False)):
        monkeypatch.setattr(ceilings, "_run_trials", lambda *_, found=results: (found, [counts] * 3))
        found = measure("amqp10", "sender", 256, seconds=1.0, trials=3, on_fork=None)
        assert found.is_doubtful is doubtful
        assert found.without_stalls == 1000


def test_only_stalls_between_the_first_and_the_last_message_count() -> None:
    control = StopControl(lambda: False)
    control.event("stall", {"from_ns": 50, "duration_ns": 100})
    control.event("stall", {"from_ns": 300, "duration_ns": 5, "count": 4, "total_ns": 20})
    control.event("stall", {"from_ns": 900, "duration_ns": 400})
    assert control.stalled_ns(100, 1000) == 50 + 20 + 100


@pytest.mark.parametrize(
    ("role", "messages", "counts"),
    [
        ("sender", 100, NullServerCounts(octets=99 * 256)),
        ("receiver", 100, NullServerCounts(messages=99)),
        ("sender", 0, NullServerCounts(octets=0)),
    ],
)
def test_two_sides_that_disagree_make_no_ceiling(
    role: str, messages: int, counts: NullServerCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = TrialResult(messages, 1.0, 0.5, 1.0, 1)
    monkeypatch.setattr(ceilings, "_run_trials", lambda *_: ([result], [counts]))
    with pytest.raises(LostError):
        measure("mqtt", role, 256, seconds=0.1, trials=1, on_fork=None)


def test_a_side_that_dies_is_noticed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ceilings.trial, "__name__", "crescendo.calibrate.no_such_module")
    with pytest.raises(LostError, match="did not finish its trials"):
        measure("mqtt", "sender", 256, seconds=0.1, trials=1, on_fork=None)
    assert "no_such_module" in capfd.readouterr().err
