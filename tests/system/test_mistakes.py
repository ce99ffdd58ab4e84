"""A user's mistake gives one clear sentence and exit code 2, and leaves nothing that looks like a recording."""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crescendo.cli.main import main
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.experiment_file import experiment_from, load_experiment
from crescendo.net.sockets import connect, listen
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.run.execute import execute, new_run_dir
from crescendo.run.observer import RunObserver
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.loopback import LOOPBACK

Refuse = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refuse:
    """The complaint of a command that starts no process, so it runs in this one."""

    def call(*arguments: str) -> str:
        out = ["--out", str(tmp_path / "runs")] if arguments[0] == "run" else []
        monkeypatch.setattr("sys.argv", ["crescendo", *arguments, *out])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return _complaint(left.value.code, printed.out, printed.err, tmp_path / "runs")

    return call


def _complaint(code: object, stdout: str, stderr: str, out: Path) -> str:
    assert code == 2, stdout + stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    complaint = [line for line in stderr.splitlines() if line.startswith("crescendo: ")]
    assert len(complaint) == 1, stderr
    if out.exists():
        assert not list(out.iterdir())
    return complaint[0]


def _refused(launch: Callable[..., Any], *arguments: str) -> str:
    """The complaint of a command that may start others."""
    session = launch(*arguments)
    done = session.finish(timeout_s=60)
    return _complaint(done.returncode, done.stdout, done.stderr, session.out)


def test_a_typo_is_named_with_its_cure(refused: Refuse, experiment: Callable[..., Path]) -> None:
    path = experiment(workload={"sendrs": 3})
    assert refused("run", str(path)) == f"crescendo: {path}: workload: unknown key 'sendrs'; did you mean 'senders'?"


def test_a_size_below_the_stamp_is_rejected(refused: Refuse, experiment: Callable[..., Path]) -> None:
    complaint = refused("run", str(experiment(workload={"size": 31})))
    assert "size 31" in complaint
    assert "32" in complaint


def test_a_missing_experiment_file_is_named(refused: Refuse, tmp_path: Path) -> None:
    assert refused("run", str(tmp_path / "no.yml")).endswith("no.yml: no such file")


def test_an_unknown_system_is_rejected_with_the_known_ones(refused: Refuse, experiment: Callable[..., Path]) -> None:
    complaint = refused("run", str(experiment(system={"kind": "loopbak"})))
    assert "no system is called 'loopbak'; did you mean 'loopback'? known: " in complaint


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"inspect": [{"kind": "artmis"}]}, "no inspector is called 'artmis'; did you mean 'artemis'?"),
        ({"inspect": [{"kind": "artemis"}]}, "inspect: artemis does not fit the system loopback; give it the url"),
        (
            {"system": {"kind": "loopback", "settings": {"usr": "a"}}},
            "system.settings.usr: loopback has no such setting; did you mean 'user'",
        ),
        ({"workload": {"protocol": "mqtt"}}, "workload.main.protocol: loopback does not speak mqtt; write amqp10"),
    ],
)
def test_what_is_known_before_a_run_is_refused_before_anything_starts(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    document = {"name": "wrong", "system": {"kind": "loopback"}, **changes}
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        execute(experiment_from(document), out=tmp_path / "runs", command=[], observer=RunObserver())
    assert not (tmp_path / "runs").exists()


def test_a_wrong_control_url_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"control URL 'http://host' should read mqtt://"):
        execute(
            experiment_from({"name": "x"}),
            out=tmp_path / "r",
            command=[],
            observer=RunObserver(),
            control="http://host",
        )
    assert not (tmp_path / "r").exists()


def test_the_report_and_the_model_of_nothing_are_refused(
    refused: Refuse, experiment: Callable[..., Path], tmp_path: Path
) -> None:
    assert refused("report", str(tmp_path / "nosuch")).endswith("nosuch: no such directory")
    assert refused("report", str(experiment())).endswith(".yml: no such directory")
    assert "nosuch: not a recording" in refused("model", str(tmp_path / "nosuch"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--for", "5"), "--for: 5 needs a unit: write 5s for seconds"),
        (("--size", "10"), "--size: size 10 is outside"),
        (("--producers", "1000000"), "--producers: 1000000 is out of range"),
        (("--url-file", "url.txt"), "URL and --url-file: give one of the two"),
    ],
)
def test_a_mistake_in_a_flag_is_said_of_the_flag(refused: Refuse, arguments: tuple[str, ...], sentence: str) -> None:
    for verb in ("try", "init"):
        assert sentence in refused(verb, "amqp://127.0.0.1", *arguments)


@pytest.mark.parametrize("kind", ["directory", "binary"])
def test_a_directory_or_a_program_as_experiment_file_is_refused(refused: Refuse, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "experiment.yml"
    if kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"\x7fELF\xd0\x00")
    complaint = refused("run", str(path))
    assert complaint.endswith("it is a directory; name a file in it" if kind == "directory" else "it is not UTF-8 text")


def test_recordings_are_not_written_into_a_file(experiment: Callable[..., Path]) -> None:
    taken = experiment()
    with pytest.raises(ConfigError, match=re.escape(f"--out {taken}: this is not a directory")):
        new_run_dir(taken, "x")


def test_a_host_that_nobody_knows_is_reported_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)  # so that no resolver of a network is asked
    with pytest.raises(PeerError, match=r"no-host:5672 cannot be found: .*spelled correctly\?"):
        connect("no-host", 5672)


def test_a_file_of_any_name_has_a_name_for_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "größe test.yml"
    path.write_text("workload: {rate: 5}", encoding="utf-8")
    assert load_experiment(path).name == "groe-test"


def test_an_unreachable_system_is_reported(launch: Callable[..., Any], experiment: Callable[..., Path]) -> None:
    with listen() as taken:
        port = taken.getsockname()[1]  # no process listens there once it is closed
    complaint = _refused(launch, "run", str(experiment(system={"url": f"amqp://127.0.0.1:{port}"})))
    assert f"127.0.0.1:{port} refused the connection" in complaint


@pytest.fixture
def locked_relay(tmp_path: Path) -> Iterator[RunningInstance]:
    settings = {"user": "ada", "password": "difference engine"}
    relay = start(LOOPBACK, settings, directory=tmp_path / "relay", on_fork=die_with_parent())
    yield relay
    relay.stop()


def test_a_wrong_password_is_reported_and_never_shown(
    launch: Callable[..., Any], tmp_path: Path, locked_relay: RunningInstance
) -> None:
    url = locked_relay.url.replace("difference%20engine", "sesame-open")
    assert "sesame-open" in url
    (tmp_path / "url").write_text(url)
    complaint = _refused(launch, "try", "--url-file", str(tmp_path / "url"))  # which starts no Spark before
    assert "user 'ada'" in complaint
    assert "sesame-open" not in complaint


def test_analysing_a_directory_that_is_not_a_recording_is_rejected(refused: Refuse, tmp_path: Path) -> None:
    assert "not a recording" in refused("analyze", str(tmp_path))
