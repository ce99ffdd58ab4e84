"""Can another account of this machine read a secret of a run, or lay a trap for it? As root, with a real stranger."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest

from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.kinds.mosquitto import MOSQUITTO
from whole_runs import write_experiment

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another account")

STRANGER = 4242
MARK = "s3cr3t"
PASSWORD = f'pa$$w0rd "quo\'te" back\\slash {MARK}'
SECONDS_AHEAD = 40

RUN = """
import sys
import crescendo
control = sys.stdin.readline().strip()
result = crescendo.run(sys.argv[1], out=sys.argv[2], control=control, analyze=False)
print(result.run_dir, result.state.value, flush=True)
"""

SPY = """
import json, os, sys

def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(2**20)
    except OSError:
        return b""

for line in sys.stdin:
    needle = line.strip().encode()
    found = [f"/proc/{pid}/{name}" for pid in os.listdir("/proc") if pid.isdigit() for name in ("cmdline", "environ")]
    found += [f"{folder}/{name}" for top in sys.argv[1:] for folder, _, names in os.walk(top) for name in names]
    print(json.dumps([path for path in found if needle in read(path)]), flush=True)
"""


class Spy:
    """A process of the stranger that looks wherever it is allowed to."""

    def __init__(self, place: Path) -> None:
        script = place / "spy.py"
        script.write_text(SPY)
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-I", str(script), str(place)],  # an interpreter that every account can reach
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
        )

    def finds(self, needle: str) -> list[str]:
        """Where it can read this text: arguments, environments and files."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(needle, file=self.process.stdin, flush=True)
        found: list[str] = json.loads(self.process.stdout.readline())
        return found


@pytest.fixture
def spy(reachable_dir: Path) -> Iterator[Spy]:
    found = Spy(reachable_dir)
    yield found
    found.process.kill()
    found.process.communicate()


def lay_traps(temporary: Path, out: Path, name: str) -> list[Path]:
    """Directories whose names the stranger can compute, for every second in which the run may start."""
    traps = []
    now = datetime.now().astimezone()
    for second in range(SECONDS_AHEAD):
        stamp = (now + timedelta(seconds=second)).strftime("%Y%m%d-%H%M%S")
        instance = out / f"{name}-{stamp}" / "system"
        trap = temporary / f"crescendo-mlmq-{hashlib.sha256(str(instance).encode()).hexdigest()[:16]}"
        (trap / "data").mkdir(parents=True)
        (trap / "owner").touch()
        (trap / "password").write_text("the stranger's")
        (trap / "data" / "postgresql.conf").write_text("archive_command = 'id'\n")
        for path in (trap, *trap.rglob("*")):
            os.chown(path, STRANGER, STRANGER)
        traps.append(trap)
    return traps


def test_another_account_reads_no_secret_and_lays_no_trap(reachable_dir: Path, spy: Spy) -> None:
    (reachable_dir / "planted").write_text(f"needle of {MARK[::-1]}")
    assert spy.finds(MARK[::-1]) == [str(reachable_dir / "planted")], "the spy finds what it may read"
    temporary, out = reachable_dir / "tmp", reachable_dir / "runs"
    temporary.mkdir()
    temporary.chmod(0o1777)
    out.mkdir()
    settings = {"user": "ada", "password": PASSWORD}
    control = start(MOSQUITTO, settings, directory=reachable_dir / "control", on_fork=die_with_parent())
    path = write_experiment(
        reachable_dir / "trial.yml",
        system={"kind": "mlmq"},
        phases={"warmup": "0s", "measure": "3s", "drain": "5s"},
        workload={"address": "queue://perf", "protocol": "mlmq", "rate": 50},
        inspect=[{"kind": "process"}],
    )
    traps = lay_traps(temporary, out, "trial")
    try:
        with subprocess.Popen(
            [sys.executable, "-c", RUN, str(path), str(out)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary)},
            text=True,
        ) as run:
            assert run.stdin is not None
            print(control.url, file=run.stdin, flush=True)
            _await(lambda: list(out.glob("*/manifest.json")) or run.poll() is not None)
            assert run.poll() is None, "it could not start"
            (database,) = [*temporary.glob("crescendo-*/postgres/password"), *out.glob("*/system/data/*/password")]
            password = database.read_text().strip()
            arguments = [" ".join(_arguments(process)) for process in psutil.process_iter()]
            assert any("sender-0" in command for command in arguments)
            assert any(str(database.parent) in command for command in arguments)
            assert not any(password in command or MARK in command for command in arguments)
            assert spy.finds(password) == []
            assert spy.finds(MARK) == []
            ended = (run.stdout.read() if run.stdout else "").split()
        assert ended[-1] == "sealed"
        assert spy.finds(password) == spy.finds(MARK) == []
    finally:
        control.stop()
    for trap in traps:
        assert trap.stat().st_uid == STRANGER
        assert stat.S_IMODE(trap.stat().st_mode) == 0o755
        assert (trap / "password").read_text() == "the stranger's"
    left = set(temporary.iterdir()) - set(traps)
    assert left == set()


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _await(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
