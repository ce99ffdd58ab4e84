"""Does what the documentation says to type work when it is typed?

All commands run in this process and in one directory, in their order, on systems that tests share: a placeholder such
as `amqp://user:password@host` becomes the URL of a real one. Runs are shortened and judged by losses alone, because a
busy machine may be too slow for everything else: their messages are counted, and only `analyze` analyses. Commands that
come to the same run are run once; runs that no other command needs are run at the end, several at a time. A marker
beside a command says what else is shortened, or why it is only parsed. Commands that serve run as children, until the
commands of their page are done.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from crescendo.cli.main import app
from crescendo.mlmq.postgres.running_server import embedded_url
from crescendo.model.errors import CrescendoError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import load_experiment, to_document
from crescendo.model.protocols import protocol_of
from crescendo.pipeline.spark import session as spark_session
from crescendo.record.manifest import State
from crescendo.record.reader import open_recording
from crescendo.record.schema import RECEIVED, SENT
from crescendo.record.summary import read_summary
from crescendo.run import session
from crescendo.run.analysis import Analyst
from crescendo.run.observer import RunObserver
from crescendo.run.result import RunResult
from crescendo.systems import detached
from documented import NOT_RUN, ROOT, Documented, commands, yaml_experiments
from served_commands import FREE_PORT, ServedCommands

SHORT = ("phases={warmup: 0s, measure: 300ms, drain: 20s}", "checks={lost: 0}")
IMPORTED = {
    "maestro": ("maestro/sender.dat", "maestro/file-01.hdr", "maestro/test.properties"),
    "mlmq-log": ("mlmq",),
    "quiver": ("quiver",),
}
_PLACEHOLDER = re.compile(r"\b([a-z0-9]+)://(?:user:password@|127\.0\.0\.1|localhost|host)[\w.:]*")
SAMPLES = ROOT / "tests/importers/samples"
RECORDINGS = ROOT / "tests/samples/version-0.1"
RUNNABLE = [item for item in commands() if not item.marker.startswith(NOT_RUN)]
RUNS_AT_ONCE = 3  # they mostly wait
VERDICTS = {"compare": {0, 1, 3}}
"""Exit codes of commands whose verdict depends on the speed of the machine; all others must end with 0."""


@pytest.fixture(scope="module")
def place(reachable_dir: Path) -> Iterator[Path]:
    """The reader's directory: a checkout, with the files that the pages speak of."""
    directory = reachable_dir / "reader"
    directory.mkdir()
    (directory / "experiments").symlink_to(ROOT / "experiments")
    for name, sample in {"release-1-20260102-030405": "baseline", "release-2-20260103-030405": "run"}.items():
        shutil.copytree(RECORDINGS / sample, directory / "runs" / name)
    (directory / "logs" / "run_56").mkdir(parents=True)
    rows = [f"{9 + at % 5};{at * 500};{kind}" for at in range(300) for kind in ("CSndReq#OK#", "BTotReqResp", "BDb")]
    (directory / "logs" / "run_56" / "client.log").write_text("\n".join(rows) + "\n", encoding="utf-8")
    latency = directory / "runs/lake/latency/experiment=release/run=release-1"
    shutil.copytree(RECORDINGS / "baseline/tables/latency", latency)
    shutil.copytree(RECORDINGS / "run", directory / "runs/demo-20260102-030405")
    (directory / "topology.yml").write_text("graph_type: line\nrouters: 3\nrouter_program: relay\n", encoding="utf-8")
    (directory / "secret.txt").write_text("a-password-of-the-network\n", encoding="utf-8")
    before = Path.cwd()
    os.chdir(directory)
    yield directory
    os.chdir(before)


@pytest.fixture(scope="module")
def urls(request: pytest.FixtureRequest) -> dict[str, str]:
    """Scheme of a URL, or kind of inspector -> the URL of a system that is running."""
    endpoints = {name: request.getfixturevalue(name).endpoints for name in ("artemis", "rabbitmq", "mosquitto")}
    artemis, rabbitmq, mosquitto = endpoints["artemis"], endpoints["rabbitmq"], endpoints["mosquitto"]
    mlmq = request.getfixturevalue("mlmq").endpoints
    return {
        "amqp": artemis["amqp"], "amqp091": rabbitmq["amqp091"], "stomp": rabbitmq["stomp"],
        "mqtt": mosquitto["mqtt"], "openwire": artemis["openwire"], "core": artemis["core"],
        "mlmq": mlmq["mlmq"], "inspect artemis": artemis["management"], "inspect rabbitmq": rabbitmq["management"],
        "inspect mosquitto": mosquitto["mqtt"], "inspect mlmq": mlmq["management"],
    }  # fmt: skip


@pytest.fixture
def state(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where calibrations are kept, and systems that were brought up; none is left when a command fails."""
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    yield
    for name in detached.names():
        detached.down(name)


def _run(words: list[str]) -> int:
    started_s = time.monotonic()
    try:
        if words[:2] == ["system", "up"]:  # what it starts outlives its process, and must not be a child of this one
            command = [sys.executable, "-m", "crescendo.cli.main", *words]
            return subprocess.run(command, timeout=180, check=False).returncode
        app(words, standalone_mode=False)
    except CrescendoError as err:
        pytest.fail(f"{shlex.join(words)}: {err}")
    except SystemExit as err:
        return int(err.code or 0)
    finally:
        print(f"{time.monotonic() - started_s:6.1f} s  {shlex.join(words)}", file=sys.stderr)
    return 0


def _with_systems(words: list[str], urls: dict[str, str]) -> list[str]:
    """The command with the URLs of real systems, instead of placeholders and of systems that it would start."""
    words = [_PLACEHOLDER.sub(lambda match: urls[match[1]], word) for word in words]
    if words[0] != "run" or "--set-file" in words:
        return words
    overrides = [words[index + 1] for index, word in enumerate(words) if word == "--set"]
    loaded = load_experiment(Path(words[1]), tuple(overrides))
    if loaded.system.kind in {None, "loopback"}:
        return words
    protocol = protocol_of(loaded.workload[0].protocol)
    kept = [override for override in overrides if not override.startswith(("system", "inspect"))]
    inspect = json.dumps(_shared_inspectors(loaded, urls))
    shared = [*kept, f'system={{url: "{urls[protocol.scheme]}"}}', f"inspect={inspect}"]
    return ["run", words[1], *(word for override in shared for word in ("--set", override))]


def _shared_inspectors(experiment: Experiment, urls: dict[str, str]) -> list[dict[str, Any]]:
    """The inspectors of an experiment, for systems that run already; process is that of this test."""
    found: list[dict[str, Any]] = []
    for each in experiment.inspect:
        if each.kind == "process":
            found.append({"kind": each.kind, "pid": os.getpid()})
        elif url := urls.get(f"inspect {each.kind}"):
            found.append({"kind": each.kind, "url": url, "every": "200ms"})
    return found


def _identity(words: list[str]) -> str:
    """What a command does: two that come to the same run, whoever watches it, are the same."""
    overrides = tuple(words[index + 1] for index, word in enumerate(words) if word == "--set")
    if words[0] != "run" or "--set-file" in words:
        return shlex.join(words)
    loaded = to_document(load_experiment(Path(words[1]), overrides))
    return json.dumps({key: value for key, value in loaded.items() if key != "inspect"}, default=str)


def _directory_of(words: list[str], place: Path) -> Path:
    """What a command calls DIR."""
    return place / "-".join(["exported", *words[:2]]).replace("/", "-")


def _arguments(command: Documented, urls: dict[str, str], place: Path) -> list[str]:
    words = command.words + shlex.split(command.marker)
    run = next((str(path.relative_to(place)) for path in sorted((place / "runs").glob("quick-amqp10-*"))), "")
    out = str(_directory_of(words, place))
    named = {
        "RUN": run,
        "runs/quick-*": run,
        "runs/trial-20260102-030405": run,
        "BASELINE": "runs/release-1-20260102-030405",
        "DIR": out,
        # Runs that a reader compares are not analysed here; these are.
        "runs/journal-on-*": "runs/release-1-*",
        "runs/journal-off-*": "runs/release-2-*",
    }
    if words[0] == "compare":
        named["RUN"] = "runs/release-2-20260103-030405"
    words = _with_systems([named.get(word, word) for word in words], urls)
    # Spark has another working directory, because its session is older than this one.
    words = [str(place / word) if word.startswith(("runs/", "logs/")) else word for word in words]
    match words[0]:
        case "run":
            shorter = [word for override in SHORT for word in ("--set", override)]
            return [*words, *shorter, "--no-fsync", "--out", str(place / "runs")]
        case "try":
            return [*words, "--for", "300ms", "--rate", "100", "--out", str(place / "runs")]
        case "logs":
            return ["logs", str(place / "logs/run_56"), *words[2:]]
        case "import":
            return ["import", words[1], *(str(SAMPLES / each) for each in IMPORTED[words[1]]), *words[3:]]
    return words


def _assert_all_arrived(run_dir: Path) -> None:
    recording = open_recording(run_dir)
    assert recording.manifest.state == State.SEALED, run_dir
    assert 0 < recording.rows(SENT) <= recording.rows(RECEIVED), run_dir


@pytest.mark.timeout(900)
@pytest.mark.shares("spark", "artemis", "rabbitmq", "mosquitto", "mlmq")
@pytest.mark.usefixtures("state", "spark")
def test_documented_commands_work(place: Path, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "url.txt").write_text(urls["amqp"], encoding="utf-8")
    (place / "broker.url").write_text(urls["amqp"], encoding="utf-8")
    latency = next(item.text for item in yaml_experiments() if "latency-at-4600" in item.text)
    shorter = {**yaml.safe_load(latency), "checks": {"lost": 0}}
    (place / "latency.yml").write_text(yaml.safe_dump(shorter), encoding="utf-8")

    def count(result: RunResult, _analyst: Analyst, _observer: RunObserver, _report: bool) -> RunResult:
        _assert_all_arrived(result.run_dir)
        return replace(result, summary=read_summary(RECORDINGS / "run"))

    monkeypatch.setattr(session, "_judge", count)
    monkeypatch.setattr(session, "load_experiment", lambda path: load_experiment(path, SHORT))  # of programs
    monkeypatch.setattr(spark_session, "close_session", lambda *_arguments, **_options: None)  # other tests share it
    monkeypatch.setattr(signal, "signal", lambda *_arguments: None)  # verbs take signals for themselves
    done: set[str] = set()
    runs: list[list[str]] = []
    with ServedCommands() as served:
        for command in RUNNABLE:
            if command.is_python:
                exec(command.words[1], {})  # noqa: S102, because a process for each would take longer
                continue
            words = _arguments(command, urls, place)
            if command.where != served.page:
                served.end()
            if (identity := _identity(words)) in done:
                continue
            if words[0] in FREE_PORT:
                if "--database-file" in words:  # the reader's own database: that of the broker before
                    (place / "database.url").write_text(embedded_url(_directory_of(["broker", "--data"], place)))
                served.serve(command.where, words)
            elif words[0] == "run" and done:  # the first is the one that other commands need
                runs.append(words)
            else:
                code = _run(words)
                assert code in VERDICTS.get(words[0], {0}), (command, words)
            done.add(identity)
    with ThreadPoolExecutor(RUNS_AT_ONCE) as pool:
        ended = list(pool.map(_run, runs))
    assert not any(ended), list(zip(ended, runs, strict=True))
    assert len(runs) > 15
    assert len(done) > 60
