"""Does what the documentation says to type work when it is typed?

All commands run in this process and in one directory, in their order, on systems that tests share: a placeholder such
as `amqp://user:password@host` becomes the URL of a real one. Runs are shortened, and only the first is analysed: what
follows a run is the same for all. A marker beside a command says what else is shortened, or why it is only parsed.
"""

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from crescendo.cli.main import app
from crescendo.model.errors import CrescendoError
from crescendo.model.experiment_file import load_experiment
from crescendo.model.protocols import protocol_of
from crescendo.pipeline.spark import session as spark_session
from crescendo.record.summary import Summary
from crescendo.run import session
from crescendo.run.analysis import Analyst
from documented import NOT_RUN, ROOT, Documented, commands, yaml_experiments

SHORT = ["--set", "phases={warmup: 0s, measure: 300ms, drain: 5s}", "--no-fsync"]
IMPORTED = {"maestro": "maestro", "mlmq-log": "mlmq", "quiver": "quiver"}
_PLACEHOLDER = re.compile(r"\b([a-z0-9]+)://(?:user:password@|127\.0\.0\.1|localhost|host)[\w.:]*")
SAMPLES = ROOT / "tests/importers/samples"
RECORDINGS = ROOT / "tests/samples/version-0.1"
ELSEWHERE = {"watch", "web"}
"""Verbs that need a process of their own: tests/system/test_run_live.py, tests/web. JMS clients: tests/load/jms."""

NETWORKS = ("experiments/federation/", "experiments/amqperf/")
"""Their runs start several brokers, or hosts: test_federations.py, test_moving_stations.py."""

RUNNABLE = [
    item
    for item in commands()
    if not item.marker.startswith(NOT_RUN)
    and item.words[0] not in ELSEWHERE
    and "jms" not in item.text
    and not (item.words[0] == "run" and item.words[1].startswith(NETWORKS))
]
JUDGING = {"run", "try", "compare", "analyze", "calibrate"}
VERDICTS = {0, 1, 3}
"""Exit codes of commands that judge; on a busy machine a short run may not pass."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The reader's directory: a checkout, with the files that the pages speak of."""
    directory = tmp_path_factory.mktemp("reader")
    (directory / "experiments").symlink_to(ROOT / "experiments")
    for name, sample in {"release-1-20260102-030405": "baseline", "release-2-20260103-030405": "run"}.items():
        shutil.copytree(RECORDINGS / sample, directory / "runs" / name)
    (directory / "logs" / "run_56").mkdir(parents=True)
    rows = [f"{9 + at % 5};{at * 500};{kind}" for at in range(300) for kind in ("CSndReq#OK#", "BTotReqResp", "BDb")]
    (directory / "logs" / "run_56" / "client.log").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (directory / "topology.yml").write_text("graph_type: line\nrouters: 3\nrouter_program: relay\n", encoding="utf-8")
    (directory / "secret.txt").write_text("a-password-of-the-network\n", encoding="utf-8")
    before = Path.cwd()
    os.chdir(directory)
    yield directory
    os.chdir(before)


@pytest.fixture(scope="module")
def urls(request: pytest.FixtureRequest) -> dict[str, str]:
    """Kind of system or scheme of a URL -> the URL of one that is running."""
    endpoints = {name: request.getfixturevalue(name).endpoints for name in ("artemis", "rabbitmq", "mosquitto")}
    artemis, rabbitmq, mosquitto = endpoints["artemis"], endpoints["rabbitmq"], endpoints["mosquitto"]
    return {
        "amqp": artemis["amqp"], "amqp091": rabbitmq["amqp091"], "stomp": rabbitmq["stomp"],
        "mqtt": mosquitto["mqtt"], "openwire": artemis["openwire"], "core": artemis["core"],
        "mlmq": request.getfixturevalue("mlmq").endpoints["mlmq"],
    }  # fmt: skip


def _run(words: list[str]) -> int:
    try:
        app(words, standalone_mode=False)
    except CrescendoError as err:
        pytest.fail(f"{shlex.join(words)}: {err}")
    except SystemExit as err:
        return int(err.code or 0)
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
    shared = [*kept, f'system={{url: "{urls[protocol.scheme]}"}}', "inspect=[]"]
    return ["run", words[1], *(word for override in shared for word in ("--set", override))]


def _arguments(command: Documented, urls: dict[str, str], place: Path) -> list[str]:
    words = command.words + shlex.split(command.marker)
    run = next((str(path.relative_to(place)) for path in sorted((place / "runs").glob("quick-amqp10-*"))), "")
    out = str(place / "-".join(["exported", *words[:2]]).replace("/", "-"))
    named = {"RUN": run, "runs/quick-*": run, "BASELINE": "runs/release-1-20260102-030405", "DIR": out}
    if words[0] == "compare":
        named["RUN"] = "runs/release-2-20260103-030405"
    words = _with_systems([named.get(word, word) for word in words], urls)
    # Spark has another working directory, because its session is older than this one.
    words = [str(place / word) if word.startswith(("runs/", "logs/")) else word for word in words]
    match words[0]:
        case "run":
            return [*words, *SHORT, "--out", str(place / "runs")]
        case "try":
            return [*words, "--for", "300ms", "--out", str(place / "runs")]
        case "logs":
            return ["logs", str(place / "logs/run_56"), *words[2:]]
        case "import":
            return ["import", words[1], str(SAMPLES / IMPORTED[words[1]]), *words[3:]]
    return words


@pytest.mark.timeout(900)
@pytest.mark.shares("spark", "artemis", "rabbitmq", "mosquitto", "mlmq")
def test_documented_commands_work(
    place: Path, urls: dict[str, str], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))  # where calibrations are kept
    (place / "url.txt").write_text(urls["amqp"], encoding="utf-8")
    (place / "broker.url").write_text(urls["amqp"], encoding="utf-8")
    latency = next(item.text for item in yaml_experiments() if "latency-at-4600" in item.text)
    shorter = {**yaml.safe_load(latency), "checks": {"lost": 0}}
    (place / "latency.yml").write_text(yaml.safe_dump(shorter), encoding="utf-8")
    analysed: list[Summary] = []

    def judge_once(result: Any, analyst: Analyst, observer: Any, report: bool) -> Any:
        if not analysed or "journal" in result.run_dir.name:  # which are compared
            judged = judge(result, analyst, observer, report)
            analysed.append(judged.summary)
            return judged
        return replace(result, summary=analysed[0])

    judge = session._judge
    monkeypatch.setattr(session, "_judge", judge_once)
    monkeypatch.setattr(spark_session, "close_session", lambda *_arguments, **_options: None)  # other tests share it
    done: set[str] = set()
    for command in RUNNABLE:
        words = _arguments(command, urls, place)
        if shlex.join(words) in done:
            continue
        done.add(shlex.join(words))
        started_s = time.monotonic()
        code = _run(words)
        print(f"{time.monotonic() - started_s:6.1f} s  {shlex.join(words)}", file=sys.stderr)
        assert code in (VERDICTS if words[0] in JUDGING else {0}), (command, words)
    assert len(done) > 30
