"""Do systems that are started by hand keep running, and does `down` remove every trace of them?"""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

CRESCENDO = str(Path(sys.executable).with_name("crescendo"))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def crescendo(state: Path) -> Iterator[Command]:
    """`crescendo system …` with its own state directory, which must be empty at the end."""

    def call(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            [CRESCENDO, "system", *arguments],
            env=_environment(state),
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    before = {process.pid for process in psutil.process_iter()}
    yield call
    if (state / "systems").is_dir() and list((state / "systems").iterdir()):
        assert call("down", "--all").returncode == 0
    assert not (state / "systems").exists() or list((state / "systems").iterdir()) == []
    left = [
        process
        for process in psutil.process_iter()
        if process.pid not in before and str(state) in _command_and_environment(process)
    ]
    assert left == []


def test_two_of_a_kind_run_side_by_side_until_they_are_stopped(crescendo: Command, state: Path) -> None:
    first, second = (json.loads(crescendo("up", "mosquitto", "--json").stdout) for _ in range(2))
    assert (first["name"], second["name"]) == ("mosquitto", "mosquitto-2")
    for started in (first, second):
        assert _accepts(started["url"])
    shown = json.loads(crescendo("status", "--json").stdout)
    assert [(found["name"], found["state"], found["pid"]) for found in shown] == [
        ("mosquitto", "up", first["pid"]),
        ("mosquitto-2", "up", second["pid"]),
    ]
    assert stat.S_IMODE((state / "systems" / "mosquitto" / "instance.json").stat().st_mode) == 0o600
    secret = urlsplit(first["url"]).password or "?"
    assert secret not in crescendo("status").stdout + json.dumps(shown)
    assert json.loads(crescendo("status", "--json", "--credentials").stdout)[0]["url"] == first["url"]

    assert crescendo("down", "mosquitto").stdout == "mosquitto is down\n"
    assert not _runs(first["pid"])
    assert _accepts(second["url"])
    again = crescendo("down", "mosquitto")
    assert (again.returncode, again.stdout) == (0, "mosquitto was not up\n")
    assert crescendo("down", "mosquitto-2").returncode == 0
    assert not _runs(second["pid"])


def test_a_taken_name_is_refused_with_the_cure(crescendo: Command) -> None:
    assert crescendo("up", "loopback", "--name", "mine").returncode == 0
    second = crescendo("up", "loopback", "--name", "mine")
    assert second.returncode == 2
    assert "--name mine: a system of that name exists; crescendo system down mine stops it" in second.stderr
    assert crescendo("status", "mine").returncode == 0  # the first one is not affected


def test_its_log_can_be_read_and_followed(crescendo: Command, state: Path) -> None:
    port = json.loads(crescendo("up", "loopback", "--json").stdout)["facts"]["ports"]["amqp"]
    assert f"serving on port {port}" in crescendo("logs", "loopback").stdout
    follower = subprocess.Popen(
        [CRESCENDO, "system", "logs", "loopback", "--follow"],
        env=_environment(state),
        stdout=subprocess.PIPE,
        text=True,
    )
    with follower:
        assert follower.stdout is not None
        assert f"serving on port {port}" in follower.stdout.readline()
        with (state / "systems/loopback/files/logs/loopback.log").open("a") as log:
            log.write("something new\n")
        assert follower.stdout.readline() == "something new\n"
        crescendo("down", "loopback")
        assert follower.wait(10) == 0


def test_a_system_that_died_is_shown_as_dead_and_can_be_taken_down(crescendo: Command) -> None:
    started = json.loads(crescendo("up", "loopback", "--json").stdout)
    os.kill(started["pid"], signal.SIGKILL)
    _until(lambda: not _runs(started["pid"]))
    status = crescendo("status", "--json")
    assert (status.returncode, json.loads(status.stdout)[0]["state"]) == (1, "dead")
    assert crescendo("down", "loopback").stdout == "loopback is down\n"


def test_a_reused_pid_is_left_alone(crescendo: Command, state: Path) -> None:
    started = json.loads(crescendo("up", "loopback", "--json").stdout)
    os.kill(started["pid"], signal.SIGKILL)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as unrelated:
        record = state / "systems/loopback/instance.json"
        record.write_text(record.read_text().replace(f'"pid":{started["pid"]}', f'"pid":{unrelated.pid}'))
        assert crescendo("down", "loopback").returncode == 0
        assert unrelated.poll() is None
        unrelated.kill()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)]
)
def test_an_interrupted_up_leaves_nothing_that_down_does_not_find(
    crescendo: Command, state: Path, number: signal.Signals
) -> None:
    up = subprocess.Popen(
        [CRESCENDO, "system", "up", "rabbitmq"], env=_environment(state), stderr=subprocess.PIPE, text=True
    )
    with up:
        record = state / "systems/rabbitmq/instance.json"
        _until(lambda: record.exists() and len(json.loads(record.read_text())["processes"]) == 2)
        pids = [process["pid"] for process in json.loads(record.read_text())["processes"]]
        assert all(_runs(pid) for pid in pids)
        os.kill(pids[-1], signal.SIGSTOP)  # it cannot become ready before `down` has been tried
        while_starting = crescendo("down", "rabbitmq")
        assert while_starting.returncode == 2
        assert f"is being started by process {up.pid}" in while_starting.stderr
        up.send_signal(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[-1], signal.SIGCONT)
        up.wait(30)
    if number == signal.SIGKILL:
        assert json.loads(crescendo("status", "--json").stdout)[0]["state"] == "unfinished"
        assert crescendo("down", "rabbitmq").returncode == 0
    assert list((state / "systems").iterdir()) == []
    assert not any(_runs(pid) for pid in pids)


# -- mistakes of users -----------------------------------------------------------------------------------------------


def refused(answer: subprocess.CompletedProcess[str], state: Path) -> str:
    """The last line of stderr; checks for exit code 2, no traceback and no leftovers."""
    assert answer.returncode == 2, answer
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    assert not (state / "systems").exists() or list((state / "systems").iterdir()) == []
    return answer.stderr.splitlines()[-1]


def test_a_taken_port_is_refused(crescendo: Command, state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        message = refused(crescendo("up", "rabbitmq", "--port", f"management={port}"), state)
    assert message.startswith(f"crescendo: port management={port}: another program has it")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "rabitmq"], "no system is called 'rabitmq'; did you mean 'rabbitmq'"),
        (["up", "mosquitto", "--set", "persistence"], "--set persistence: write key=value"),
        (["up", "mosquitto", "--set", "memory=[", "--set", "user=x"], "--set memory: the value is not"),
        (["up", "mosquitto", "--port", "mqtt"], "--port mqtt: write name=number"),
        (["up", "mosquitto", "--name", "../evil"], "'../evil' is not a valid system name"),
        (["up", "mosquitto", "--home", "/"], "there is no program called mosquitto in /"),
        (["down", "../evil"], "'../evil' is not a valid system name"),
        (["down"], "name the systems to stop, or give --all"),
        (["status", "nobody"], "no system is called 'nobody'; none is up"),
        (["logs", "nobody"], "no system is called 'nobody'; none is up"),
    ],
)
def test_a_mistake_is_refused_with_one_line(
    crescendo: Command, state: Path, arguments: list[str], message: str
) -> None:
    assert message in refused(crescendo(*arguments), state)


def test_a_state_directory_that_cannot_be_created_is_named(crescendo: Command, state: Path) -> None:
    state.touch()
    message = refused(crescendo("up", "loopback"), state)
    state.unlink()
    assert "cannot be written: Not a directory; name another with CRESCENDO_STATE" in message


def test_without_permission_nothing_is_started(crescendo: Command, state: Path) -> None:
    state.mkdir(mode=0o500)
    # Root may write everywhere, unless it loses that capability.
    unprivileged = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*unprivileged, CRESCENDO, "system", "up", "loopback"]
    answer = subprocess.run(command, env=_environment(state), capture_output=True, text=True, check=False)
    assert "cannot be written: Permission denied; name another with CRESCENDO_STATE" in refused(answer, state)


@as_root
def test_a_full_disk_is_named(crescendo: Command, state: Path) -> None:
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", state], check=True)
    try:
        assert "is full: 1 MB left" in refused(crescendo("up", "rabbitmq"), state)
    finally:
        subprocess.run(["umount", state], check=True)


# -- kinds and installations -----------------------------------------------------------------------------------------


def test_the_list_names_every_kind_with_what_is_installed(crescendo: Command) -> None:
    rows = {row["kind"]: row for row in json.loads(crescendo("list", "--json").stdout)}
    assert set(rows) >= {"rabbitmq", "mosquitto", "activemq", "artemis", "qpid-broker-j", "qpid-dispatch", "loopback"}
    assert rows["rabbitmq"]["protocols"] == ["amqp", "amqp091", "stomp", "mqtt"]
    package = ["dpkg-query", "--show", "--showformat", "${Version}", "rabbitmq-server"]
    packaged = subprocess.run(package, capture_output=True, text=True, check=True).stdout
    assert packaged.startswith(rows["rabbitmq"]["installed"])
    text = crescendo("list").stdout
    assert all(kind in text for kind in rows)


def test_installing_an_installed_system_changes_nothing(crescendo: Command) -> None:
    answer = crescendo("install", "mosquitto", "--json")
    assert json.loads(answer.stdout)["origin"].startswith("package mosquitto ")


def test_a_missing_program_is_named_with_the_cure(state: Path) -> None:
    code = (
        "from crescendo.systems.install import packages; packages._SBIN = ('/nowhere',); "
        "import sys; sys.argv = ['crescendo', 'system', 'up', 'mosquitto']; from crescendo.cli.main import main; main()"
    )
    environment = {**_environment(state), "PATH": "/nowhere"}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "mosquitto is not installed; try: crescendo system install mosquitto" in refused(answer, state)


def _environment(state: Path) -> dict[str, str]:
    return {**os.environ, "CRESCENDO_STATE": str(state), "COLUMNS": "300"}


def _accepts(url: str) -> bool:
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), 5):
        return True


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether the process runs. A zombie that init has not reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command_and_environment(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), *process.environ().values()])
    except (psutil.Error, OSError):
        return ""
