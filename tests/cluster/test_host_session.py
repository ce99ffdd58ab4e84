"""What the program on a host does, here without ssh: it owns one directory and leaves nothing half done."""

import dataclasses
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from crescendo.cluster.cluster_file import ClusterHost, PeerOnHost, read_plan
from crescendo.cluster.cluster_lifecycle import ClusterAccess, bring_up, run_hook, take_down
from crescendo.cluster.host_session import HostSession, on_every
from crescendo.cluster.remote_program import MARK
from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError, LostError

PEER: dict[str, Any] = {
    "id": "sender-a", "role": "sender", "labels": [], "listen": "", "settings": "", "digest": "1", "version": "1",
}  # fmt: skip
SECRETS = {"control.url": "mqtt://nowhere", "lab.token": "s3cr3t-t0k3n"}


@pytest.fixture
def host(tmp_path: Path) -> ClusterHost:
    peers = (PeerOnHost("sender-a", "sender", ()),)
    return ClusterHost("a", (), sys.executable, "", str(tmp_path / "on-host" / "lab" / "a"), "", peers)


@pytest.fixture
def session(host: ClusterHost) -> Iterator[HostSession]:
    opened = HostSession(host)
    yield opened
    opened.close()


def program(path: Path, text: str) -> str:
    """A stand-in for the interpreter of a host, which is started as that would be."""
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return str(path)


def marked(host: ClusterHost) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == host.directory and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def within(seconds: float, condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_secrets_are_private_files_and_never_arguments(session: HostSession, host: ClusterHost, tmp_path: Path) -> None:
    waiting = program(tmp_path / "waiting", "import time; print('waits for runs', flush=True); time.sleep(600)")
    session.ask("start", 60, python=waiting, peers=[PEER], secrets=SECRETS, ready_s=30)
    (process,) = marked(host)
    assert SECRETS["lab.token"] not in " ".join([*process.cmdline(), *process.environ().values()])
    directory = Path(host.directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / "lab.token").read_text() == SECRETS["lab.token"] + "\n"
    assert all(stat.S_IMODE((directory / name).stat().st_mode) == 0o600 for name in SECRETS)
    assert session.ask("look", 30)["peers"]["sender-a"]["alive"]
    assert session.ask("remove", 30) == {"ended": 1, "left": [], "directory": False}
    assert marked(host) == []
    assert not (tmp_path / "on-host").exists()  # the empty directories above are gone, too
    assert tmp_path.exists()


@pytest.mark.parametrize("reaction", ["SIG_DFL", pytest.param("SIG_IGN", marks=pytest.mark.soak)])
def test_a_peer_that_outlives_its_connection_is_found_and_ended_by_the_next(
    session: HostSession, host: ClusterHost, tmp_path: Path, reaction: str
) -> None:
    lines = [f"import signal, time; signal.signal(signal.SIGTERM, signal.{reaction})"]
    lines += ["print('waits for runs', flush=True)", "time.sleep(600)"]
    waiting = program(tmp_path / "waiting", "\n".join(lines))
    session.ask("start", 60, python=waiting, peers=[PEER], secrets=SECRETS, ready_s=30)
    session.close()
    assert len(marked(host)) == 1
    (answer,), _ = (list(part.values()) for part in on_every([host], lambda opened: opened.ask("remove", 60)))
    assert answer["left"] == []
    assert marked(host) == []


def test_nothing_is_left_of_a_start_that_nobody_waits_for(host: ClusterHost, tmp_path: Path) -> None:
    """As when ssh is killed: the input of the program on the host ends. It ends what was not ready."""
    session = HostSession(host)
    slow = program(tmp_path / "slow", "import time; time.sleep(600)")
    request = {"python": slow, "peers": [PEER], "secrets": SECRETS, "ready_s": 300}
    failure: list[Exception] = []

    def ask() -> None:
        try:
            session.ask("start", 300, **request)
        except (LostError, ConfigError, ValueError, OSError) as err:
            failure.append(err)

    thread = threading.Thread(target=ask)
    thread.start()
    assert within(30, lambda: marked(host))
    assert session._process.stdin is not None
    session._process.stdin.close()
    assert within(20, lambda: not marked(host))
    thread.join()
    session.close()
    assert failure


def test_a_peer_that_does_not_start_is_one_sentence(session: HostSession, host: ClusterHost, tmp_path: Path) -> None:
    broken = program(tmp_path / "broken", "import sys; sys.exit('crescendo: --control: no such host')")
    with pytest.raises(ConfigError, match=r"^a: sender-a ended: crescendo: --control: no such host$"):
        session.ask("start", 60, python=broken, peers=[PEER], secrets=SECRETS, ready_s=30)
    assert marked(host) == []


def test_directories_of_others_are_neither_used_nor_deleted(session: HostSession, host: ClusterHost) -> None:
    directory = Path(host.directory)
    directory.mkdir(parents=True)
    (directory / "mine.txt").write_text("keep me")
    with pytest.raises(ConfigError, match="holds files that are not ours"):
        session.ask("start", 60, python="", peers=[PEER], secrets=SECRETS, ready_s=30)
    session.ask("remove", 30)
    assert (directory / "mine.txt").read_text() == "keep me"


def test_hosts_that_cannot_be_reached_are_named_together(host: ClusterHost) -> None:
    unknown = dataclasses.replace(host, name="b", python="no-such-python")
    refused = dataclasses.replace(
        host, name="c", ssh=("-F", "none", "-p", "1", "-o", "StrictHostKeyChecking=no", "--", "127.0.0.1")
    )
    with pytest.raises(ConfigError, match=r"b: no-such-python cannot be started"):
        on_every([unknown], lambda opened: opened.ask("look", 30))
    found, faults = on_every([host, refused], lambda opened: opened.ask("look", 30), patient=True)
    assert found["a"]["python"].startswith("3.")
    assert faults["c"].startswith("c: ssh: ")
    assert "Connection refused" in faults["c"]


def test_taking_down_what_is_not_there_is_no_mistake(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.ini"
    variables = f"ansible_connection=local ansible_python_interpreter={sys.executable}"
    inventory.write_text(f"[senders]\na {variables} crescendo_directory={tmp_path}/none\n")
    assert take_down(read_plan(inventory), Lab("70ce" * 12), lambda _: None) == 0


def test_a_hook_that_fails_is_named_and_ends_with_us(tmp_path: Path) -> None:
    run_hook("provision", (sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"), lambda _: None)
    assert (tmp_path / "ran").exists()
    with pytest.raises(ConfigError, match=r"release: .*python.* ended with code 3"):
        run_hook("release", (sys.executable, "-c", "raise SystemExit(3)"), lambda _: None)
    with pytest.raises(ConfigError, match="provision: no-such-program cannot be started: No such file"):
        run_hook("provision", ("no-such-program",), lambda _: None)


def test_provision_may_write_the_inventory_and_release_follows_it(tmp_path: Path) -> None:
    inventory, released = tmp_path / "hosts.ini", tmp_path / "released"
    host = "[senders]\na ansible_connection=local ansible_python_interpreter=no-such-python\n"
    hooks = {
        "provision": f"open({str(inventory)!r}, 'w').write({host!r})",
        "release": f"open({str(released)!r}, 'w').write(open({str(inventory)!r}).read())",
    }
    cluster = {"inventory": "hosts.ini", **{name: [sys.executable, "-c", text] for name, text in hooks.items()}}
    (tmp_path / "cluster.yml").write_text(json.dumps(cluster))  # JSON is YAML
    said: list[str] = []
    access = ClusterAccess("mqtt://nowhere", Lab("70ce" * 12))
    with pytest.raises(ConfigError, match="a: no-such-python cannot be started"):
        bring_up(read_plan(tmp_path / "cluster.yml"), access, said.append)
    assert released.read_text() == host
    assert [line.partition(":")[0] for line in said] == ["provision", "release", "looking at 1 host(s)"]


def test_ssh_ends_with_a_conductor_that_is_killed(host: ClusterHost, tmp_path: Path) -> None:
    """No ssh process, and no program on the host, is left behind."""
    owner = (
        "import sys, time\n"
        "from crescendo.cluster.cluster_file import ClusterHost\n"
        "from crescendo.cluster.host_session import HostSession\n"
        f"session = HostSession(ClusterHost('a', (), sys.executable, '', {host.directory!r}, '', ()))\n"
        "session.ask('look', 30)\n"
        "print(session._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    os.kill(process.pid, 9)
    process.communicate()
    assert within(20, lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
