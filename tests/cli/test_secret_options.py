"""Do passwords reach verbs and peers without standing in a list of arguments?"""

import io
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from crescendo.cli.secret_options import read_set_file, secret_url, warn_of_secrets
from crescendo.control.peer_launch import PeerLaunch
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, load_experiment
from crescendo.run.peer_process import PeerProcess

URL = "mqtt://ada:s3cr3t@127.0.0.1:1"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "control.url"
    path.write_text(f"{URL}\nanother line\n")
    return str(path)


def test_a_url_comes_from_a_file_from_standard_input_or_from_the_environment(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert secret_url("--control", None, None) is None
    assert secret_url("--control", None, file) == URL
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{URL}\n"))
    assert secret_url("--control", None, "-") == URL
    monkeypatch.setenv("CRESCENDO_CONTROL", URL)
    assert secret_url("--control", None, None) == URL
    assert "CRESCENDO_CONTROL" not in os.environ, "children would inherit it"
    assert capsys.readouterr().err == ""


def test_a_password_in_an_option_is_used_with_a_warning_that_does_not_repeat_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert secret_url("--database", "postgresql://ada:s3cr3t@h/n", None) == "postgresql://ada:s3cr3t@h/n"
    warning = capsys.readouterr().err
    assert "--database-file FILE, or set CRESCENDO_DATABASE" in warning
    assert "s3cr3t" not in warning
    warn_of_secrets(["system.settings={password: s3cr3t}"])
    assert capsys.readouterr().err.endswith("can read its password; give it with --set-file PATH=FILE\n")
    assert secret_url("--control", "mqtt://ada@h:1883", None) == "mqtt://ada@h:1883"
    warn_of_secrets(["workload.rate=5", "workload.address=amqp://h/queue/a@b"])
    assert capsys.readouterr().err == ""


def test_a_mistake_names_the_option_and_no_content(tmp_path: Path, file: str) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\ns3cr3t\n")
    binary = tmp_path / "binary"
    binary.write_bytes(b"s3cr3t\xff\n")
    for given, path, expected in (
        (URL, file, "--control and --control-file"),
        (None, str(tmp_path / "none"), "No such file"),
        (None, str(empty), "the first line is empty"),
        (None, str(binary), "not UTF-8"),
    ):
        with pytest.raises(ConfigError, match=expected) as caught:
            secret_url("--control", given, path)
        assert "s3cr3t" not in str(caught.value)
    with pytest.raises(ConfigError, match="write it as path=FILE"):
        read_set_file("system.settings.password")


def test_a_setting_from_a_file_is_text_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("[007]: *'#{\n")
    path, value = read_set_file(f"system.settings.password={tmp_path / 'password'}")
    (tmp_path / "it.yml").write_text("workload: {address: 'queue://a'}\nsystem: {kind: loopback}\n")
    loaded = load_experiment(tmp_path / "it.yml", (), {path: value})
    assert loaded.system.settings == {"password": "[007]: *'#{"}
    assert loaded == experiment_from(
        {"name": "it", "workload": {"address": "queue://a"}, "system": {"kind": "loopback"}}, (), {path: value}
    )


def test_a_peer_gets_the_control_url_though_no_argument_contains_it(tmp_path: Path) -> None:
    launch = PeerLaunch(URL, "run", "5ec2e7")
    peer = PeerProcess("sender-0", "sender", launch, tmp_path, tmp_path / "logs")
    try:
        arguments = psutil.Process(peer.pid).cmdline()
        peer.wait(30)
        log = (tmp_path / "logs" / "sender-0.log").read_text()
    finally:
        peer.stop()
    assert "sender-0" in arguments
    assert "s3cr3t" not in " ".join(arguments)
    assert "5ec2e7" not in " ".join(arguments)
    assert "5ec2e7" not in repr(launch)
    assert "the control broker mqtt://ada:***@127.0.0.1:1 cannot be reached" in log


def test_the_broker_verb_reads_its_database_from_standard_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crescendo.cli.main", "broker", "--init", "--database-file", "-"],
        input="postgresql://ada:s3cr3t/x@127.0.0.1:1/n\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "postgresql://ada:***@127.0.0.1:1/n is not a valid URL of a database" in done.stderr
    assert "s3cr3t" not in done.stderr + done.stdout
