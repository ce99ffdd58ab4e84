"""Agents by hand and in runs, on the real control plane: commands, refusals, failures, what is left after a kill."""

import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import yaml

from crescendo.cli.control import control
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import load_experiment
from crescendo.record.reader import open_recording
from crescendo.run import lab_view
from crescendo.run.startable import check_startable
from crescendo.systems.instance import RunningInstance
from handler_repository import HandlerRepository
from plain_control_client import OK, PlainClient, lab_name
from whole_runs import Launcher, Session, launching

TOKEN = "a9e47f" * 8
START_AGENT, STOP_AGENT, AGENT_SOURCE, USER_COMMAND = 18, 19, 21, 30
SET, GET, LOG, PROTOCOL_ERROR, NOTIFY_FAIL, NOTIFY_SUCCESS, TEST_STARTED = 7, 17, 40, 12, 15, 16, 70
LAB_RUN = str(Path(__file__).with_name("lab_run.py"))
HANDLER_MARK = "CRESCENDO_TEST_HANDLERS"
TIMEOUT_S = 60.0

HANDLERS = {
    "user_command/say.sh": """#!/bin/sh
read given
echo "{\\"note\\": \\"begun\\"}" >&"$CRESCENDO_EVENTS_FD"
echo "{\\"event\\": \\"said\\", \\"given\\": $given}" >&"$CRESCENDO_EVENTS_FD"
echo "said $given"
""",
    "user_command/fail": "#!/bin/sh\necho no >&2\nexit 3\n",
    "user_command/hang": "#!/bin/sh\ntrap '' TERM HUP INT\n(setsid sleep 1000 &)\nsleep 1000\n",
    "user_command/mark": '#!/bin/sh\nread given\necho "$given" >>"$MARKS"\n',
    "user_command/flood": "#!/bin/sh\nexec head -c 100000000 /dev/zero\n",
}


EXPERIMENT: dict[str, Any] = {
    "workload": {"senders": 1, "receivers": 1, "rate": 100},
    "phases": {"warmup": "200ms", "measure": "1500ms", "drain": "2s"},
}


class AgentFiles:
    """A repository, and the configuration of an agent that allows its commit; handlers carry a mark."""

    def __init__(self, directory: Path, handlers: dict[str, str], **limits: Any) -> None:
        self.mark, self.marks = uuid.uuid4().hex, directory / "marks"
        self.repository = HandlerRepository(directory / "handlers")
        for path, content in handlers.items():
            self.repository.write(path, content)
        self.commit = self.repository.commit()
        self.source = str(self.repository.path)
        self.config = directory / "agent.yml"
        document = {
            "sources": [{"from": self.source, "commits": [self.commit]}],
            "limits": limits,
            "environment": {HANDLER_MARK: self.mark, "MARKS": str(self.marks)},
        }
        self.config.write_text(yaml.safe_dump(document))

    def running(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(HANDLER_MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def wait_for(self, count: int) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while (found := len(self.running())) < count or (count == 0 and found):
            assert time.monotonic() < deadline_s, self.running()
            time.sleep(0.02)

    def wait_for_marks(self, links: set[str]) -> None:
        """Until the handler that marks has been run with these parameters."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while (found := self.marks.read_text() if self.marks.exists() else "").count("\n") < len(links):
            assert time.monotonic() < deadline_s, found
            time.sleep(0.02)
        assert {json.loads(line)["link"] for line in found.splitlines()} == links


class AgentLab:
    """One standing agent, and a plain client of its lab."""

    def __init__(self, directory: Path, url: str, launch: Launcher) -> None:
        self.url, self.data = url, directory / "data"
        self.files = AgentFiles(directory, HANDLERS, time="2s")
        self.url_file, self.token_file = directory / "control.url", directory / "lab.token"
        for file, text in ((self.url_file, url), (self.token_file, TOKEN)):
            file.write_text(text + "\n")
            file.chmod(0o600)
        access = ["--control-file", str(self.url_file), "--token-file", str(self.token_file)]
        self.session: Session = launch(
            "peer", "agent", "--id", "agent-a", "--data", str(self.data), "--config", str(self.files.config), *access
        )
        self.client = PlainClient(url, TOKEN, lab_name(TOKEN))
        self.standing = self.client.sessions({"agent-a"})["agent-a"]

    def ask(self, command: int, payload: dict[Any, Any] | None = None) -> tuple[int, Any]:
        return self.client.ask("agent-a", self.standing, command, payload)


@pytest.fixture(scope="module")
def lab(mosquitto: RunningInstance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    directory = tmp_path_factory.mktemp("agents")
    with launching(directory) as launch:
        lab = AgentLab(directory, mosquitto.url, launch)
        yield lab
        lab.client.close()


class AgentTest:
    """A test by hand with the agent of the lab: its process, asked in the scope of the test."""

    def __init__(self, lab: AgentLab) -> None:
        self.lab = lab
        self.client = PlainClient(lab.url, TOKEN, uuid.uuid4().hex[:16])
        assert lab.ask(START_AGENT, {"run": self.client.scope})[0] == OK
        self.process = self.client.notification(TEST_STARTED, "agent-a")[6]

    def ask(self, command: int, payload: dict[Any, Any]) -> tuple[int, Any]:
        return self.client.ask("agent-a", self.process[4], command, payload)

    def ended(self, handler: str) -> tuple[int, Any]:
        (note,) = self.client.wait(
            lambda note: note[1] == 2 and note[2] in {NOTIFY_FAIL, NOTIFY_SUCCESS} and note[7].get("handler") == handler
        )
        return note[2], note[7]


@pytest.fixture
def by_hand(lab: AgentLab) -> Iterator[AgentTest]:
    test = AgentTest(lab)
    yield test
    lab.ask(STOP_AGENT)  # refused if it has ended already
    test.client.close()


def events_of(run_dir: Path, source: str) -> list[tuple[str, dict[str, Any]]]:
    rows: list[Any] = []
    for file in sorted((run_dir / "events").glob(f"{source}-*.parquet")):
        rows += pq.read_table(file).to_pylist()
    return [(row["kind"], json.loads(row["detail"])) for row in sorted(rows, key=lambda row: row["t_ns"])]


def test_commands_run_at_the_same_time_and_say_how_they_ended(lab: AgentLab, by_hand: AgentTest) -> None:
    refused = by_hand.ask(USER_COMMAND, {"command": "say"})
    assert (refused[0], "AGENT_SOURCE" in refused[1]["reason"]) == (PROTOCOL_ERROR, True)
    refused = by_hand.ask(AGENT_SOURCE, {"source": "/etc", "branch": ""})
    assert (refused[0], "is not on the list" in refused[1]["reason"]) == (PROTOCOL_ERROR, True)
    command, fetched = by_hand.ask(AGENT_SOURCE, {"source": lab.files.source, "branch": "main"})
    assert (command, fetched["commit"]) == (OK, lab.files.commit)
    assert fetched["commands"] == ["fail", "flood", "hang", "mark", "say.sh"]
    for name in ("../../bin/sh", "nothing"):
        assert by_hand.ask(USER_COMMAND, {"command": name})[0] == PROTOCOL_ERROR
    started = {
        name: by_hand.ask(USER_COMMAND, {"command": name, "parameters": {"seconds": 5}})[1]["handler"]
        for name in ("hang", "flood", "fail", "say")
    }
    command, said = by_hand.ended(started["say"])
    assert (command, said["code"], said["output"]) == (NOTIFY_SUCCESS, 0, 'said {"seconds": 5}\n')
    command, failed = by_hand.ended(started["fail"])
    assert (command, failed["code"], failed["output"], failed["reason"]) == (NOTIFY_FAIL, 3, "no\n", "")
    command, flood = by_hand.ended(started["flood"])
    assert (command, flood["reason"], len(flood["output"])) == (NOTIFY_FAIL, "it printed more than it may", 65_536)
    command, hung = by_hand.ended(started["hang"])
    assert (command, hung["reason"], hung["left"] >= 1) == (NOTIFY_FAIL, "it ran longer than it may", True)
    assert lab.files.running() == []
    assert by_hand.client.notification(LOG, "agent-a")[7] == {"handler": started["say"], "lines": ["begun"]}
    assert lab.ask(STOP_AGENT)[0] == OK
    events = events_of(lab.data / by_hand.client.scope, "agent-a")
    assert ("handler event", {"event": "said", "given": {"seconds": 5}, "handler": started["say"]}) in events
    assert [kind for kind, _ in events].count("handler ended") == 4
    assert not (lab.data / by_hand.client.scope / "agents" / "agent-a").exists()


def test_kill_9_of_guardians_or_of_the_agent_leaves_nothing_but_cures_that_were_run(
    lab: AgentLab, by_hand: AgentTest
) -> None:
    assert by_hand.ask(AGENT_SOURCE, {"source": lab.files.source})[0] == OK
    handlers = [by_hand.ask(USER_COMMAND, {"command": "hang"})[1]["handler"] for _ in range(2)]
    lab.files.wait_for(6)
    agent = psutil.Process(by_hand.process[3])
    for guardian in agent.children():
        guardian.kill()
    for handler in handlers:
        assert by_hand.ended(handler)[1]["reason"] == "its guardian was killed"
    lab.files.wait_for(0)
    assert agent.children() == [], "it has ended what its guardians left"
    for link in ("a", "b"):
        broken = {"command": "hang", "cure": "mark", "parameters": {"link": link}}
        assert by_hand.ask(USER_COMMAND, broken)[0] == OK
    assert by_hand.ask(USER_COMMAND, {"command": "mark", "parameters": {"link": "b"}})[0] == OK, "which undoes the last"
    lab.files.wait_for_marks({"b"})
    agent.kill()
    lab.files.wait_for_marks({"a", "b"})
    lab.files.wait_for(0)
    assert lab.files.marks.read_text().count("\n") == 2, "each once"


def test_the_command_line_fetches_a_source_and_waits_for_a_command(
    lab: AgentLab, by_hand: AgentTest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_view, "DISCOVER_S", 0.0)  # the standing agent names the test
    monkeypatch.setattr(lab_view.LabView.refresh, "__defaults__", (0.1,))

    def ask(action: str, *arguments: str) -> tuple[int, list[Any]]:
        code = control("-", action, list(arguments), lab.token_file, lab.url_file, as_json=True)
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    target = f"{by_hand.client.scope}/agent-a"
    code, (fetched,) = ask("source", target, f"source={lab.files.source}")
    assert (code, fetched["payload"]["commit"]) == (0, lab.files.commit)
    code, (began, ended) = ask("command", target, "command=fail", "seconds=10")
    assert (code, began["answer"], ended["answer"]) == (1, "OK", "NOTIFY_FAIL")
    assert (ended["payload"]["code"], ended["payload"]["output"]) == (3, "no\n")
    with pytest.raises(ConfigError, match="give command=NAME"):
        ask("command", target)


def test_a_standing_agent_takes_part_in_a_run_and_is_free_again(lab: AgentLab, tmp_path: Path) -> None:
    access = ["--control-file", str(lab.url_file), "--token-file", str(lab.token_file)]
    path = tmp_path / "trial.yml"
    agents = [{"name": "far", "on": "agent-a", "source": lab.files.source, "branch": lab.files.commit}]
    path.write_text(yaml.safe_dump({**EXPERIMENT, "agents": agents, "faults": [fault("far", "say")]}))
    with launching(tmp_path) as launch:
        for role in ("sender", "receiver"):
            launch("peer", role, "--id", f"{role}-far", "--data", str(tmp_path / role), *access)
        words = [sys.executable, LAB_RUN, str(path), str(tmp_path / "runs"), str(lab.url_file), str(lab.token_file)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["sealed"], done.stderr
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert [detail["command"] for kind, detail in events_of(run_dir, "agent-far") if kind == "handler ended"] == [
        "say.sh"
    ]
    assert [path.name for path in lab.data.iterdir() if (path / "journal" / "agent-far.jsonl").exists()] == []


# -- in runs ----------------------------------------------------------------------------------------------------------


def experiment_with(directory: Path, handlers: dict[str, str], **keys: Any) -> tuple[Path, AgentFiles]:
    directory.mkdir()
    files = AgentFiles(directory, handlers, time="20s")
    agents = [{"name": name, "config": "agent.yml", "source": files.source} for name in ("north", "south")]
    path = directory / "trial.yml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, "agents": agents, **keys}))
    return path, files


def fault(on: str, command: str, **settings: Any) -> dict[str, Any]:
    return {"at": "measure + 300ms", "on": on, "do": "handler", "with": {"command": command, **settings}}


RUNS: dict[str, dict[str, Any]] = {
    "good": {
        "handlers": HANDLERS | {"start_agent/a": "#!/bin/sh\necho up\n", "stop_agent/z": "#!/bin/sh\necho down\n"},
        "faults": [fault("north", "say", parameters={"n": 1}), fault("south", "say", parameters={"n": 2})],
    },
    "cured": {
        "handlers": HANDLERS | {"user_command/undo": '#!/bin/sh\nread given\necho "undone $given"\n'},
        "faults": [
            fault("north", "say", parameters={"n": 1}, cure="undo"),
            fault("south", "say", parameters={"n": 2}, cure="undo") | {"for": "200ms"},
            fault("south", "hang", cure="undo", parameters={"n": 3}),
        ],
    },
    "failing command": {"handlers": HANDLERS, "faults": [fault("south", "fail")]},
    "failing start": {"handlers": HANDLERS | {"start_agent/a": "#!/bin/sh\nexit 4\n"}},
    "hanging command": {"handlers": HANDLERS, "faults": [fault("north", "hang")]},
}


def test_what_agents_did_is_recorded_and_a_failure_is_never_a_success(tmp_path: Path) -> None:
    """Five runs at the same time, each with two agents of its own."""
    with launching(tmp_path) as launch:

        def run(name: str) -> tuple[str, Path, AgentFiles]:
            place = tmp_path / name.replace(" ", "-")
            keys = {key: value for key, value in RUNS[name].items() if key != "handlers"}
            path, files = experiment_with(place, RUNS[name]["handlers"], **keys)
            session = Launcher(place).without_analysis(path)
            launch.sessions.append(session)
            done = session.finish(90)
            assert "Traceback" not in done.stderr, done.stderr
            return done.stdout.strip(), session.run_dir(), files

        with ThreadPoolExecutor(len(RUNS)) as pool:
            results = dict(zip(RUNS, pool.map(run, RUNS), strict=True))
    for _, run_dir, files in results.values():
        assert files.running() == []
        assert not (run_dir / "agents").exists()
    state, run_dir, _ = results["good"]
    assert state == "sealed"
    assert {peer.id: peer.ended for peer in open_recording(run_dir).manifest.peers if peer.role == "agent"} == {
        "agent-north": "finished",
        "agent-south": "finished",
    }
    for number, name in ((1, "agent-north"), (2, "agent-south")):
        kinds = events_of(run_dir, name)
        assert [detail["point"] for kind, detail in kinds if kind == "handler ended"] == [
            "start_agent",
            "user_command",
            "stop_agent",
        ]
        assert [detail["given"] for kind, detail in kinds if kind == "handler event"] == [{"n": number}]
    _, run_dir, _ = results["cured"]
    for name, cures in (("agent-north", ['undone {"n": 1}']), ("agent-south", ['undone {"n": 2}', 'undone {"n": 3}'])):
        ended = [detail for kind, detail in events_of(run_dir, name) if kind == "handler ended"]
        assert [detail["output"].strip() for detail in ended if detail["command"] == "undo"] == cures
    state, run_dir, _ = results["failing command"]
    assert state == "incomplete"
    assert "fail: it exited with code 3: no" in open_recording(run_dir).manifest.reason
    state, run_dir, _ = results["hanging command"]
    assert state == "incomplete"
    assert "hang" in open_recording(run_dir).manifest.reason
    _, run_dir, _ = results["failing start"]
    ended = {peer.id: (peer.ended, peer.reason) for peer in open_recording(run_dir).manifest.peers}
    assert ended["agent-north"] == ("failed", "start_agent/a: exited with code 4")


def test_a_run_whose_agent_may_not_use_its_source_does_not_start(tmp_path: Path) -> None:
    path, files = experiment_with(tmp_path / "x", HANDLERS)
    document = yaml.safe_load(path.read_text())

    def changed(**change: str) -> Path:
        path.write_text(yaml.safe_dump({**document, "agents": [document["agents"][0] | change]}))
        return path

    check_startable(load_experiment(changed()))
    with pytest.raises(ConfigError, match="is not on the list of sources"):
        check_startable(load_experiment(changed(source=str(tmp_path))))
    with pytest.raises(ConfigError, match=r"nothing.yml: cannot be read"):
        check_startable(load_experiment(changed(config="nothing.yml")))
    files.repository.write("user_command/new", "#!/bin/sh\n")
    files.repository.commit()
    with launching(tmp_path) as launch:
        session = launch.without_analysis(changed(branch="main"))
        assert "is not a commit that this agent allows" in session.finish(90).stderr
        assert list(session.out.iterdir()) == []
