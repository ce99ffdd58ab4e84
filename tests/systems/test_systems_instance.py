"""Whatever a program does, is it started cleanly and removed without a trace?"""

import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems import instance as instance_module
from crescendo.systems.instance import RunningInstance, start
from plain_kind import SERVE, PlainKind

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and change accounts")

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
orphan = subprocess.Popen(["/usr/bin/env", "sleep", "600"], start_new_session=True)
open(sys.argv[2] + "/pids", "w").write(f"{os.getpid()} {orphan.pid}")
"""


def running(kind: PlainKind, tmp_path: Path, **options: object) -> RunningInstance:
    return start(kind, {}, directory=tmp_path / "it", on_fork=die_with_parent(), **options)  # type: ignore[arg-type]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[RunningInstance]:
    instance = running(PlainKind(), tmp_path)
    yield instance
    instance.stop()


def test_files_are_readable_by_their_owner_only(instance: RunningInstance) -> None:
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [instance.directory, *instance.directory.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert modes[instance.directory / "secret.txt"] == modes[instance.directory / "deep/down/file.txt"] == 0o600


def test_a_program_gets_a_minimal_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_PASSWORD", "hunter2")
    instance = running(PlainKind(), tmp_path)
    try:
        environment = psutil.Process(instance.pid).environ()
    finally:
        instance.stop()
    assert "CLOUD_PASSWORD" not in environment
    assert environment["HOME"] == str(tmp_path / "it")


def test_facts_and_command_line_contain_no_secret(instance: RunningInstance) -> None:
    secret = (instance.directory / "secret.txt").read_text()
    assert len(secret) >= 12
    assert secret in instance.url
    assert secret not in str(instance.facts)
    assert secret not in " ".join(psutil.Process(instance.pid).cmdline())


def test_a_program_that_exits_is_noticed_at_once_and_its_log_is_quoted_without_the_password(tmp_path: Path) -> None:
    program = "import sys; sys.exit('bad luck with ' + open(sys.argv[2] + '/secret.txt').read() + ' today')"
    began_s = time.monotonic()
    with pytest.raises(ConfigError, match=r"program ended with exit code 1 .*bad luck with \*\*\* today"):
        running(PlainKind(program), tmp_path, keep_logs=tmp_path / "kept")
    assert time.monotonic() - began_s < 10
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert "bad luck" in (tmp_path / "kept" / "program.log").read_text()


def test_a_program_that_never_serves_and_ignores_sigterm_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_module, "STOP_GRACE_S", 0.3)
    pids: list[int] = []

    def collect_pids(instance: RunningInstance) -> None:
        pids.extend(_pids_in(tmp_path / "it" / "pids") if instance.processes else [])

    with pytest.raises(ConfigError, match="did not serve within 1 s"):
        running(PlainKind(STUBBORN + "time.sleep(600)"), tmp_path, timeout_s=1, on_launch=collect_pids)
    assert len(pids) == 2
    assert not any(_runs(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_ends_slowly_is_not_waited_for_where_its_data_is_deleted(tmp_path: Path) -> None:
    instance = running(PlainKind(STUBBORN + SERVE, ends_slowly=True), tmp_path)
    pids = _pids_in(tmp_path / "it" / "pids")
    began_s = time.monotonic()
    instance.stop()
    assert time.monotonic() - began_s < instance_module.STOP_GRACE_S / 2
    assert len(pids) == 2
    assert not any(_runs(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


def test_a_child_that_outlives_its_program_is_killed_too(tmp_path: Path) -> None:
    instance = running(PlainKind(STUBBORN + SERVE), tmp_path)
    program, orphan = _pids_in(tmp_path / "it" / "pids")
    assert program == instance.pid
    os.kill(program, signal.SIGKILL)
    assert _runs(orphan)
    instance.stop()
    assert not _runs(orphan)


def test_a_stopped_program_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_module, "STOP_GRACE_S", 0.3)
    instance = running(PlainKind(), tmp_path)
    os.kill(instance.pid, signal.SIGSTOP)
    instance.stop()
    instance.stop()  # safe to call twice
    assert not _runs(instance.pid)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_start_leaves_nothing(tmp_path: Path) -> None:
    pids: list[int] = []

    def interrupt(instance: RunningInstance) -> None:
        pids.extend(process.pid for process in instance.processes)
        if pids:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        running(PlainKind(), tmp_path, on_launch=interrupt)
    assert pids
    assert not any(_runs(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_neither_used_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "precious").touch()
    with pytest.raises(ConfigError, match="File exists"):
        running(PlainKind(), tmp_path)
    assert (tmp_path / "it" / "precious").exists()


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = PlainKind()
    plan = kind.plan

    def without_program(*arguments: object) -> object:
        blueprint = plan(*arguments)  # type: ignore[arg-type]
        object.__setattr__(blueprint.launches[0], "argv", ("/nowhere/at-all",))
        return blueprint

    monkeypatch.setattr(kind, "plan", without_program)
    with pytest.raises(ConfigError, match="plain cannot start /nowhere/at-all: No such file or directory"):
        running(kind, tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- as root ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system with the given size in megabytes."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}m", "tmpfs", mount_point], check=True)
    yield mount_point
    subprocess.run(["umount", mount_point], check=True)


@as_root
@pytest.mark.parametrize("small_disk", [1], indirect=True)
def test_a_full_disk_is_named_before_anything_starts(small_disk: Path) -> None:
    with pytest.raises(ConfigError, match=r"the disk of .* is full: 1 MB left"):
        running(PlainKind(), small_disk)
    assert list(small_disk.iterdir()) == []


@as_root
@pytest.mark.parametrize("small_disk", [60], indirect=True)
def test_a_disk_that_fills_up_during_the_start_is_named(small_disk: Path) -> None:
    program = "import sys; f = open(sys.argv[2] + '/data/journal', 'wb', 0)\nwhile True: f.write(bytes(2**20))"
    with pytest.raises(ConfigError, match=r"the disk of .* is full, and its log is empty"):
        running(PlainKind(program), small_disk)
    assert list(small_disk.iterdir()) == []


def _pids_in(path: Path) -> list[int]:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        if path.exists() and len(pids := path.read_text().split()) == 2:
            return [int(pid) for pid in pids]
        time.sleep(0.02)
    pytest.fail(f"{path} was never written")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
