"""Does a package start no service while it is installed, and is the former policy back afterwards, or after a kill?"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crescendo.systems.install import service_policy
from crescendo.systems.install.service_policy import VARIABLE, services_disabled

FORMER = "#!/bin/sh\nexit 104\n"  # allows all
FORBIDDEN = 101

INSTALLATION = """
import subprocess, sys
from pathlib import Path
from crescendo.systems.install import service_policy
service_policy.POLICY = Path(sys.argv[1])
with service_policy.services_disabled() as guard:
    apt = subprocess.Popen(["sleep", "600"], pass_fds=(guard,))
    print(apt.pid, flush=True)
    apt.wait()
"""


@pytest.fixture(params=[None, FORMER], ids=["none before", "one before"])
def policy(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / service_policy.POLICY.name
    monkeypatch.setattr(service_policy, "POLICY", path)
    if request.param is not None:
        path.write_text(request.param)
        path.chmod(0o755)
    return path


def asked(policy: Path, **environment: str) -> int:
    """What it answers to the question whether a service may start."""
    command = [policy, "mosquitto", "start"]
    return subprocess.run(command, check=False, env={"PATH": os.defpath, **environment}).returncode


def is_restored(policy: Path, before: str | None) -> bool:
    text = policy.read_text() if policy.exists() else None
    return text == before and len(list(policy.parent.iterdir())) == (before is not None)


def test_only_our_own_installation_is_refused_and_the_former_policy_is_restored(policy: Path) -> None:
    before = policy.read_text() if policy.exists() else None
    with contextlib.suppress(KeyboardInterrupt), services_disabled():
        assert asked(policy, **{VARIABLE: "1"}) == FORBIDDEN
        assert asked(policy) == (0 if before is None else 104)
        raise KeyboardInterrupt
    assert is_restored(policy, before)


@pytest.mark.parametrize("helper_too", [False, True])
def test_a_kill_leaves_no_policy(policy: Path, helper_too: bool) -> None:
    before = policy.read_text() if policy.exists() else None
    lab = subprocess.Popen([sys.executable, "-c", INSTALLATION, str(policy)], stdout=subprocess.PIPE, text=True)
    with lab:
        apt = int(lab.stdout.readline()) if lab.stdout else 0
        children = [int(pid) for pid in Path(f"/proc/{lab.pid}/task/{lab.pid}/children").read_text().split()]
        (helper,) = set(children) - {apt}
        if helper_too:
            os.kill(helper, signal.SIGKILL)
        lab.kill()
    time.sleep(0.1)
    assert asked(policy, **{VARIABLE: "1"}) == FORBIDDEN  # the installation goes on
    os.kill(apt, signal.SIGKILL)
    if helper_too:
        assert asked(policy) == (0 if before is None else 104)  # what is left refuses nobody
        with services_disabled():
            pass
    deadline_s = time.monotonic() + 20
    while not is_restored(policy, before):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
