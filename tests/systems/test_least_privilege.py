"""As root, does a system run with as few rights as possible, and is nobody else's file given away?"""

import os
import pwd
import secrets
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems import detached
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.unix_account import UnixAccount, give_directory, private_account, unusable
from plain_kind import SERVE, PlainKind

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change accounts")

STRANGER = 4242
"""The number of an account that has nothing to do with us."""


@pytest.fixture
def place(reachable_dir: Path) -> Path:
    """An empty directory that every account can reach."""
    made = reachable_dir / secrets.token_hex(4)
    made.mkdir(mode=0o755)
    return made


def running(kind: PlainKind, directory: Path, **options: object) -> RunningInstance:
    return start(kind, {}, directory=directory, on_fork=die_with_parent(), **options)  # type: ignore[arg-type]


def test_a_system_runs_as_an_account_that_nobody_else_has_and_owns_its_directory(place: Path) -> None:
    directory, kept = place / "it", place / "kept"
    instance = running(PlainKind("print('hello', flush=True)\n" + SERVE), directory, keep_logs=kept)
    try:
        uid = instance.facts["uid"]
        assert uid >= 61_184
        with pytest.raises(KeyError):
            pwd.getpwuid(uid)
        assert set(psutil.Process(instance.pid).uids()) == {uid}
        assert {path.stat().st_uid for path in (directory, directory / "secret.txt", directory / "data")} == {uid}
        assert "runs_as_root_because" not in instance.facts
        second = running(PlainKind(), place / "other")
        assert second.facts["uid"] != uid
        second.stop()
        instance.crash()
        instance.restart(on_fork=die_with_parent())
        assert set(psutil.Process(instance.pid).uids()) == {uid}
    finally:
        instance.stop()
    assert not directory.exists()
    assert (kept / "program.log").read_text() == "hello\n" * 2
    assert (kept / "program.log").stat().st_uid == 0


def test_a_blueprint_may_name_the_account(place: Path) -> None:
    instance = running(PlainKind(user="nobody"), place / "it")
    instance.stop()
    assert instance.facts["uid"] == pwd.getpwnam("nobody").pw_uid
    with pytest.raises(ConfigError, match="there is no account called nemo"):
        running(PlainKind(user="nemo"), place / "it")
    assert list(place.iterdir()) == []


def test_where_no_other_account_can_go_a_system_runs_as_root_and_its_facts_say_why(tmp_path: Path) -> None:
    closed = next(parent for parent in tmp_path.parents if not parent.stat().st_mode & 0o001)
    instance = running(PlainKind(), tmp_path / "it")
    try:
        assert (instance.facts["uid"], instance.facts["runs_as_root_because"]) == (
            0,
            f"an account of its own may not enter {tmp_path if not tmp_path.stat().st_mode & 1 else closed}",
        )
    finally:
        instance.stop()


def test_a_directory_outside_has_a_random_name_and_is_found_by_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRESCENDO_STATE", str(tmp_path / "state"))
    program = (
        "from crescendo.systems import detached; from plain_kind import PlainKind\n"
        "for _ in range(2): detached.up(PlainKind(outside_dir_file='outside'), {})"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    records = detached.all_systems()
    outside = [Path(record.outside_dirs[0]) for record in records]
    try:
        assert len(set(outside)) == 2
        for record, directory in zip(records, outside, strict=True):
            pointer = tmp_path / "state" / "systems" / record.name / "files" / "outside"
            assert pointer.read_text() == str(directory)
            assert (stat.S_IMODE(directory.stat().st_mode), directory.stat().st_uid) == (0o711, 0)
    finally:
        for record in records:
            assert detached.down(record.name)
    assert not any(directory.exists() for directory in outside)


def test_a_port_that_only_root_may_use_keeps_root(place: Path) -> None:
    instance = running(PlainKind(), place / "it", ports={"amqp": 777})
    instance.stop()
    assert instance.facts["runs_as_root_because"] == "only root may listen on port 777"


def test_a_file_that_the_account_may_not_read_is_named(place: Path) -> None:
    account = private_account()
    assert account is not None
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    (closed / "program").touch()
    (place / "link").symlink_to(closed / "program")
    secret = place / "secret"
    secret.touch(mode=0o600)
    assert unusable(account, [place, Path(sys.modules["os"].__file__ or "").parents[-1]]) is None
    assert unusable(account, [place, closed / "program"]) == closed
    assert unusable(account, [place / "nothing" / "at all"]) is None
    assert unusable(account, [place / "link"]) == closed
    assert unusable(account, [secret]) == secret
    assert unusable(UnixAccount(0, 0), [secret]) is None


@pytest.mark.parametrize("trap", ["link", "hard link", "file of another", "directory of another"])
def test_nothing_of_others_is_given_away(place: Path, trap: str) -> None:
    directory, precious = place / "it", place / "precious"
    (directory / "deep").mkdir(parents=True)
    precious.write_text("root's")
    inside = directory / "deep" / "trap"
    if trap == "link":
        directory.rename(place / "real")
        directory.symlink_to(place / "real")
    elif trap == "hard link":
        inside.hardlink_to(precious)
    elif trap == "file of another":
        inside.touch()
        os.chown(inside, STRANGER, STRANGER)
    else:
        os.chown(directory, STRANGER, STRANGER)
    with pytest.raises((ConfigError, OSError)):
        give_directory(directory, UnixAccount(61_999, 61_999))
    assert precious.stat().st_uid == 0
    assert (place / "real" if trap == "link" else directory).stat().st_uid in {0, 61_999, STRANGER}
    if trap == "link":
        assert (place / "real").stat().st_uid == 0


def test_a_link_in_a_directory_is_given_away_but_not_its_target(place: Path) -> None:
    (place / "it").mkdir()
    (place / "precious").touch()
    (place / "it" / "link").symlink_to(place / "precious")
    give_directory(place / "it", UnixAccount(61_999, 61_999))
    assert (place / "precious").stat().st_uid == 0
    assert (place / "it" / "link").lstat().st_uid == 61_999


def test_the_account_of_a_system_can_read_neither_our_files_nor_those_of_another_system(place: Path) -> None:
    ours = place / "ours"
    ours.touch(mode=0o600)
    one, other = (running(PlainKind(), place / name) for name in ("one", "other"))
    try:
        for path, allowed in (
            (ours, False),
            (other.directory / "secret.txt", False),
            (one.directory / "secret.txt", True),
        ):
            uid = str(one.facts["uid"])
            command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "cat", str(path)]
            assert (subprocess.run(command, capture_output=True, check=False).returncode == 0) == allowed
    finally:
        one.stop()
        other.stop()
