"""What the web server keeps on disk: experiments, jobs, the index, sessions."""

import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from crescendo.control.conductor.plan import PeerPlan, RunPlan
from crescendo.control.conductor.step import begin
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.experiment_file import load_experiment, to_document
from crescendo.model.verdict import Outcome
from crescendo.processes.ref import process_ref
from crescendo.record.documents import write_document
from crescendo.record.run_links import link_run
from crescendo.run.live_sample import sample
from crescendo.web import verdict_webhook, web_access
from crescendo.web.experiment_form import ExperimentForm, LoadFields, form_of, text_of
from crescendo.web.experiment_store import ExperimentStore, renamed, shipped_experiments
from crescendo.web.jobs import JobFiles, JobResult, Jobs, JobState
from crescendo.web.run_index import RunIndex, RunNote
from crescendo.web.run_process import notify
from crescendo.web.run_queue import RunQueue
from crescendo.web.verdict_webhook import Webhook
from crescendo.web.web_access import Role, TooManyAttemptsError, WebAccess
from crescendo.web.web_directory import NotFoundError, WebDirectory, child_of
from report_samples import SAMPLES, write_sample

ESCAPES = ("..", "../x", "a/b", "/etc/passwd", ".hidden", "", "a\0b", "a" * 200, "%2e%2e", "a\nb")
YAML = "name: mine\nsystem: {kind: loopback}\nworkload: {rate: 100}\nphases: {measure: 5s}\n"


@pytest.fixture
def directory(tmp_path: Path) -> WebDirectory:
    return WebDirectory(tmp_path / "runs")


@pytest.fixture
def store(directory: WebDirectory) -> ExperimentStore:
    return ExperimentStore(directory)


@pytest.mark.parametrize("name", ESCAPES)
def test_a_name_from_a_request_never_leaves_its_directory(directory: WebDirectory, name: str) -> None:
    for find in (directory.run, Jobs(directory).get, ExperimentStore(directory).get, RunIndex(directory).note):
        with pytest.raises(NotFoundError):
            find(name)


def test_a_symbolic_link_is_not_a_run(directory: WebDirectory, tmp_path: Path) -> None:
    write_sample(tmp_path / "elsewhere", SAMPLES["passing"])
    (directory.runs / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotFoundError):
        directory.run("linked")
    with pytest.raises(NotFoundError):
        child_of(directory.runs, "linked", "run")


def test_a_run_of_a_campaign_is_found_by_its_name(directory: WebDirectory, tmp_path: Path) -> None:
    write_sample(directory.runs / "growth-campaign" / "growth.001-1", SAMPLES["passing"])
    with pytest.raises(NotFoundError):
        directory.run("growth.001-1")  # any directory could hold a recording
    (directory.runs / "growth-campaign" / "campaign.json").write_text("{}")
    assert directory.run("growth.001-1") == directory.runs / "growth-campaign" / "growth.001-1"
    (directory.runs / "linked").symlink_to(tmp_path)
    write_sample(tmp_path / "elsewhere", SAMPLES["passing"])
    (tmp_path / "campaign.json").write_text("{}")
    for name in ("elsewhere", "growth-campaign/growth.001-1", "..", "growth.002-1"):
        with pytest.raises(NotFoundError):
            directory.run(name)


# -- experiments ---------------------------------------------------------------------------------------------------


def test_a_text_is_checked_with_the_messages_of_the_command_line(store: ExperimentStore, tmp_path: Path) -> None:
    wrong = YAML.replace("rate: 100", "rat: 100")
    (tmp_path / "experiment").write_text(wrong)
    with pytest.raises(ConfigError) as of_the_file:
        load_experiment(tmp_path / "experiment")
    with pytest.raises(ConfigError) as of_the_web:
        store.save(wrong)
    assert str(of_the_web.value) == str(of_the_file.value).replace(str(tmp_path / "experiment"), "experiment")
    assert store.all() == []


def test_an_experiment_is_cloned_renamed_and_archived_but_never_overwritten(store: ExperimentStore) -> None:
    assert store.save(YAML) == "mine"
    with pytest.raises(ConfigError, match="already"):
        store.save(YAML)
    assert store.clone("mine") == "mine-2"
    assert store.save(renamed(YAML, "other"), replacing="mine-2") == "other"
    assert [one.name for one in store.all()] == ["mine", "other"]
    store.set_archived("mine", True)
    assert [one.name for one in store.all()] == ["other"]
    assert [one.name for one in store.all(archived=True)] == ["mine"]
    with pytest.raises(ConfigError, match="already"):
        store.save(YAML)
    store.set_archived("mine", False)
    assert store.get("mine").text == YAML


@pytest.mark.parametrize("shipped", shipped_experiments(), ids=lambda one: one.id)
def test_every_shipped_experiment_can_be_cloned(directory: WebDirectory, shipped: object) -> None:
    store = ExperimentStore(directory)
    name = store.clone(shipped.id)  # type: ignore[attr-defined]
    assert store.check(store.get(name).text).name == name


@pytest.mark.parametrize(
    "line",
    [
        "topology: /etc/passwd",
        "topology: ../../x.yml",
        "workload: {size: {file: /etc/passwd}}",
        "profile: {kind: replay, file: ../../secret.csv}",
        "system: {kind: artemis, home: /opt/artemis}",
        "system: {kind: relay}\nfaults: [{at: 1s, do: command, with: {argv: [id]}}]",
        "agents: [{name: a, source: /r, config: ../agent.yml}]",
        "system: {url: 'amqps://host:5671?ca=/etc/passwd'}",
        "system: {kind: rabbitmq, settings: {tls: {certificate: /etc/a, key: b, ca: c}}}",
    ],
)
def test_an_experiment_names_no_file_outside_its_directory(store: ExperimentStore, line: str) -> None:
    key = line.partition(":")[0]
    kept = [
        one for one in YAML.splitlines() if not one.startswith((f"{key}:", "system:" if key == "topology" else key))
    ]
    with pytest.raises(ConfigError, match="--any-file"):
        store.check("\n".join([*kept, line]))


def test_aliases_that_stand_for_more_than_memory_holds_are_refused(store: ExperimentStore) -> None:
    pairs = itertools.pairwise("abcdefghi")
    bomb = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [*{old}, *{old}]\n" for old, new in pairs)
    with pytest.raises(ConfigError, match="aliases"):
        store.check(bomb + YAML)


def test_the_form_means_the_text_and_the_text_the_form(store: ExperimentStore) -> None:
    form = ExperimentForm(name="f", settings="brokers: 2", sender_processes="2", check_p99="")
    text = text_of(form)
    found = store.check(text)
    assert (found.system.kind, found.system.settings, found.peers.senders) == ("mlmq", {"brokers": 2}, 2)
    assert "response_p99" not in found.checks
    again = form_of(text)
    assert again is not None
    assert text_of(again) == text


def test_the_form_places_processes_on_machines_and_configures_clients(store: ExperimentStore) -> None:
    form = ExperimentForm(
        name="f", system="rabbitmq", protocol="amqp091", inspect=[], sender_processes="north: 2, south",
        receiver_processes="3", receivers="3", senders="3", client_settings="receive_rate: 50\npurge: true",
    )  # fmt: skip
    text = text_of(form)
    found = store.check(text)
    assert (found.peers.places("sender"), found.peers.count("receiver")) == (["north", "north", "south"], 3)
    assert (found.workload[0].receive_rate, found.workload[0].purge) == (50, True)
    again = form_of(text)
    assert again is not None
    assert (again.sender_processes, text_of(again)) == ("north: 2, south: 1", text)
    with pytest.raises(ConfigError, match="senders"):
        store.check(text_of(form.model_copy(update={"sender_processes": "two of them"})))


def test_the_form_has_the_clients_of_mlmq_by_kind(store: ExperimentStore) -> None:
    (stability,) = (one for one in shipped_experiments() if one.id == "mlmq--stability-short")
    form = form_of(stability.text)
    assert form is not None
    assert (form.one_way, form.paired, form.consumers, form.producers) == ("30", "16", "10", "5")
    assert (form.client_wait, form.senders, form.receivers) == ("20ms", "0", "0")
    assert to_document(store.check(text_of(form))) == to_document(store.check(stability.text))
    beside = store.check(text_of(ExperimentForm(name="f", paired="4", client_wait="5ms", client_processes="2")))
    assert [(one.kind, one.count, int(one.wait)) for one in beside.clients] == [("paired", 4, 5_000_000)]
    assert (len(beside.workload), beside.peers.clients) == (1, 2)
    with pytest.raises(ConfigError, match="make count even"):
        store.check(text_of(ExperimentForm(name="f", paired="3")))
    assert form_of(stability.text.replace("count: 16, wait: 20ms", "count: 16, wait: 10ms")) is None


def test_the_form_has_several_groups_of_senders_and_receivers(store: ExperimentStore) -> None:
    mail = LoadFields(group="mail", protocol="mqtt", senders="1", receivers="3", client_settings="receive_rate: 50\n")
    form = ExperimentForm(name="f", system="artemis", protocol="amqp10", inspect=[], group="orders", groups=[mail])
    text = text_of(form)
    orders, letters = store.check(text).workload
    assert (orders.name, orders.address, letters.name, letters.address) == (
        "orders", "queue://f-{run}", "mail", "queue://f-mail-{run}",
    )  # fmt: skip
    assert (letters.protocol, letters.receivers, letters.receive_rate) == ("mqtt", 3, 50)
    assert form_of(text) == form
    with pytest.raises(ConfigError, match="mail"):
        store.check(text_of(form.model_copy(update={"group": "mail"})))


def test_saving_the_form_of_a_text_keeps_its_meaning(directory: WebDirectory) -> None:
    store = ExperimentStore(directory)
    shipped = [one for one in shipped_experiments() if "topology:" not in one.text]  # that file is elsewhere
    shown = set()
    for text in (*(one.text for one in shipped), YAML, "name: short\nsystem: {kind: loopback}\n"):
        form = form_of(text)
        if form is not None:
            before, after = store.check(text), store.check(text_of(form))
            shown.add(before.name)
            assert [(one.kind, one.period_ns) for one in after.inspect] == [
                (one.kind, one.period_ns) for one in before.inspect
            ]
            assert to_document(after) | {"inspect": []} == to_document(before) | {"inspect": []}
    assert {one.name for one in shipped if one.folder == "quick"} <= {name.removeprefix("quick-") for name in shown}
    assert "stomp-study-10-topics" in shown  # two groups


@pytest.mark.parametrize("more", ["checks: {}", "seed: 7", "stop_when: {response_p99: 1s}", "accept_drift: true"])
def test_what_the_form_cannot_show_is_edited_as_text(more: str) -> None:
    assert form_of(YAML) is not None
    assert form_of(YAML + more) is None


# -- jobs ----------------------------------------------------------------------------------------------------------


def test_only_one_process_carries_out_a_job(directory: WebDirectory) -> None:
    jobs = Jobs(directory)
    files = jobs.get(jobs.add("mine", YAML, by="me"))
    assert files.state is JobState.QUEUED
    claims = [
        subprocess.run(
            [sys.executable, "-c", "import sys; from pathlib import Path; from crescendo.web.jobs import JobFiles; "
             f"print(JobFiles(Path({str(files.directory)!r})).claim())"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip
    assert claims == ["True", "False"]
    assert files.state is JobState.LOST  # the process that claimed it is gone and left no result
    files.finish(JobResult(JobState.DONE, "run-1", "pass"))
    assert files.state is JobState.DONE


def test_a_cancelled_job_is_not_carried_out(directory: WebDirectory) -> None:
    jobs = Jobs(directory)
    files = jobs.get(jobs.add("mine", YAML, by="me"))
    files.finish(JobResult(JobState.CANCELLED))
    assert not files.claim()
    assert jobs.unfinished() == []


def test_the_state_of_a_job_follows_its_process_not_its_pid(directory: WebDirectory) -> None:
    jobs = Jobs(directory)
    files = jobs.get(jobs.add("mine", YAML, by="me"))
    write_document(files.directory / "claim.json", process_ref("run", os.getpid()))
    assert files.state is JobState.RUNNING
    older = type(process_ref("run", 1))("run", os.getpid(), "another boot:1")
    write_document(files.directory / "claim.json", older)
    assert files.state is JobState.LOST


def test_a_half_made_job_is_not_seen(directory: WebDirectory) -> None:
    (directory.jobs / "1-x.new").mkdir()
    assert Jobs(directory).all() == []
    with pytest.raises(NotFoundError):
        Jobs(directory).get("unknown")
    assert JobFiles(directory.jobs / "unknown").result is None


def test_a_sample_of_a_run_that_has_not_begun_names_every_peer_and_claims_nothing() -> None:
    plan = RunPlan(peers=(PeerPlan("sender-0", "sender", {}),), warmup_ns=0, measure_ns=10**9, drain_ns=0, fan_out={})
    found = sample(begin(plan, 0), 5)
    assert found["elapsed_s"] is None
    assert found["sender"]["rate"] == 0.0
    assert [(peer["id"], peer["state"], peer["rate"]) for peer in found["peers"]] == [("sender-0", "expected", None)]


CLAIMS = """
import signal, sys, time
from pathlib import Path
from crescendo.web.jobs import JobFiles
heard = []
signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
assert JobFiles(Path(sys.argv[1])).claim()
while len(heard) < int(sys.argv[2]):
    time.sleep(0.02)
"""


@pytest.mark.parametrize(("now", "signals"), [(False, 1), (True, 2)])
def test_stopping_asks_once_and_now_insists(directory: WebDirectory, now: bool, signals: int) -> None:
    queue = RunQueue(directory)
    job_id = queue.jobs.add("mine", YAML, by="me")
    files = queue.jobs.get(job_id)
    child = subprocess.Popen([sys.executable, "-c", CLAIMS, str(files.directory), str(signals)])
    try:
        _until(lambda: files.claimed)
        queue.look()  # starts nothing: one is under way
        queue.stop(job_id, now=now)
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait()
    assert files.state is JobState.LOST
    with pytest.raises(ConfigError, match="lost already"):
        queue.stop(job_id, now=now)


def test_the_end_of_the_server_stops_the_run_and_keeps_the_queue(directory: WebDirectory) -> None:
    queue = RunQueue(directory)
    files = queue.jobs.get(queue.jobs.add("mine", YAML, by="me"))
    waiting = queue.jobs.get(queue.jobs.add("mine", YAML, by="me", not_before_ns=2**62))
    child = subprocess.Popen([sys.executable, "-c", CLAIMS, str(files.directory), "1"])
    try:
        _until(lambda: files.claimed)
        queue.start()
        reaper = threading.Thread(target=child.wait)
        reaper.start()
        queue.end()
        reaper.join(20)
        assert child.returncode == 0
    finally:
        child.kill()
        child.wait()
    assert waiting.state is JobState.QUEUED


def test_a_run_process_that_cannot_begin_says_why_and_notifies_the_webhook(directory: WebDirectory) -> None:
    queue = RunQueue(directory)
    Listener.taken.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Webhook(directory.own).set(f"http://127.0.0.1:{server.server_address[1]}/")
    files = queue.jobs.get(queue.jobs.add("mine", YAML.replace("rate", "rat"), by="me"))
    queue.look()
    queue.look()
    _until(lambda: files.state is JobState.FAILED, 60)
    result = files.result
    assert result is not None
    assert "unknown key 'rat'" in result.problem
    _until(lambda: len(Listener.taken) == 2)  # the first one was a test
    server.shutdown()
    server.server_close()
    assert (Listener.taken[1]["state"], Listener.taken[1]["problem"]) == ("failed", result.problem)
    assert (files.directory / "output.log").read_text() == f"{result.problem}\n"  # no traceback
    queue.look()
    assert queue.jobs.unfinished() == []
    queue.end()


def _until(reached: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


# -- the index -----------------------------------------------------------------------------------------------------


def test_the_index_follows_the_runs_on_disk(directory: WebDirectory) -> None:
    index = RunIndex(directory)
    for name in ("passing", "failing", "invalid"):
        write_sample(directory.runs / name, SAMPLES[name])
    (directory.runs / "no-run").mkdir()
    link_run(directory.runs / "passing", Outcome.PASS)  # as `crescendo run` does in the same directory
    link_run(directory.runs / "failing", Outcome.FAIL)
    index.refresh(at_once=True)
    assert {run["name"]: run["outcome"] for run in index.runs()} == {
        "passing": "pass", "failing": "fail", "invalid": "invalid",
    }  # fmt: skip
    assert index.counts() == {"pass": 1, "fail": 1, "invalid": 1}
    assert sorted(run["name"] for strip in index.strips().values() for run in strip) == [
        "failing",
        "invalid",
        "passing",
    ]
    shutil.rmtree(directory.runs / "failing")
    (directory.runs / "passing" / "summary.json").unlink()
    index.refresh(at_once=True)
    assert {run["name"]: run["outcome"] for run in index.runs()} == {"passing": "", "invalid": "invalid"}


def test_a_lost_or_damaged_index_is_built_again_from_the_runs(directory: WebDirectory) -> None:
    write_sample(directory.runs / "passing", SAMPLES["passing"])
    first = RunIndex(directory)
    first.refresh(at_once=True)
    before = first.runs()
    assert before[0]["rate"] > 0
    first.set_note("passing", RunNote("kept", ["baseline"]))
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"not a database" * 100)):
        for suffix in ("-wal", "-shm"):
            (directory.own / f"index.sqlite{suffix}").unlink(missing_ok=True)
        damage(directory.own / "index.sqlite")
        again = RunIndex(directory)
        again.refresh(at_once=True)
        assert again.runs() == before
        assert again.tags() == {"passing": ["baseline"]}
    with sqlite3.connect(directory.own / "index.sqlite") as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        database.execute("DELETE FROM runs")
    database.close()
    rebuilt = RunIndex(directory, rebuild=True)
    assert rebuilt.runs() == before


def test_the_strip_has_the_last_ten_runs_the_newest_last(directory: WebDirectory) -> None:
    write_sample(directory.runs / "run-00", SAMPLES["passing"])
    for number in range(1, 13):
        shutil.copytree(directory.runs / "run-00", directory.runs / f"run-{number:02d}")
    index = RunIndex(directory)
    (strip,) = index.strips().values()
    assert [run["name"] for run in strip] == [f"run-{number:02d}" for number in range(3, 13)]


# -- access --------------------------------------------------------------------------------------------------------


def test_a_link_works_once_and_its_session_survives_a_restart(tmp_path: Path) -> None:
    access = WebAccess(tmp_path)
    token = access.new_link()
    cookie = access.redeem(token, "here")
    with pytest.raises(ConfigError, match="was used"):
        access.redeem(token, "here")
    again = WebAccess(tmp_path)
    found = again.session(cookie)
    assert found is not None
    assert found.rights is Role.ADMIN
    assert cookie not in (tmp_path / "sessions.json").read_text()
    assert (tmp_path / "sessions.json").stat().st_mode & 0o077 == 0
    again.sign_out(cookie)
    assert again.session(cookie) is None


def test_a_session_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = WebAccess(tmp_path)
    cookie = access.redeem(access.new_link(), "here")
    later_s = time.time() + 13 * 3600
    monkeypatch.setattr(time, "time", lambda: later_s)
    assert access.session(cookie) is None


def test_a_password_is_stored_as_a_hash_and_guesses_are_limited(tmp_path: Path) -> None:
    access = WebAccess(tmp_path)
    with pytest.raises(ConfigError, match="12 or more"):
        access.set_account("eve", "viewer", "short")
    with pytest.raises(ConfigError, match="known: viewer"):
        access.set_account("eve", "king", "long enough password")
    with pytest.raises(ConfigError, match="name of an account"):
        access.set_account("<script>", "viewer", "long enough password")
    access.set_account("ada", "operator", "long enough password")
    assert "long enough" not in (tmp_path / "accounts.json").read_text()
    session = access.session(access.sign_in("ada", "long enough password", "there"))
    assert session is not None
    assert session.rights is Role.OPERATOR
    for _ in range(5):
        with pytest.raises(ConfigError, match="name or password is wrong"):
            access.sign_in("nobody", "wrong password", "there")
    with pytest.raises(TooManyAttemptsError):
        access.sign_in("ada", "long enough password", "there")
    access.sign_in("ada", "long enough password", "elsewhere")


def test_a_password_has_its_limits_and_can_be_changed_by_who_knows_it(tmp_path: Path) -> None:
    access = WebAccess(tmp_path)
    for refused in ("x" * 129, "password1234", "ababababababab", "its ada again ok"):
        with pytest.raises(ConfigError, match="the password"):
            access.set_account("ada", "operator", refused)
    long = "žluťoučký 🐎 " * 9  # 108 characters
    access.set_account("ada", "operator", long)
    cookie = access.sign_in("ada", long, "here")
    for wrong in (long[:-1], long + "x" * 100, long.upper()):
        with pytest.raises(ConfigError, match="name or password is wrong"):
            access.change_password("ada", wrong, "another long password", "here")
    before = (tmp_path / "sessions.json").read_text()
    with pytest.raises(ConfigError, match="the password"):
        access.change_password("ada", long, "short", "here")
    assert (tmp_path / "sessions.json").read_text() == before  # knowing the old one opened no session
    access.change_password("ada", long, "another long password", "here")
    assert access.session(cookie) is None
    session = access.session(access.sign_in("ada", "another long password", "here"))
    assert session is not None
    assert session.rights is Role.OPERATOR


def test_a_removed_account_cannot_sign_in_and_its_sessions_end(tmp_path: Path) -> None:
    access = WebAccess(tmp_path)
    for name in ("ada", "eve"):
        access.set_account(name, "viewer", "long enough password")
    cookies = [access.sign_in(name, "long enough password", "here") for name in ("ada", "eve")]
    access.remove_account("eve")
    assert [access.session(cookie) is not None for cookie in cookies] == [True, False]
    assert "eve" not in (tmp_path / "accounts.json").read_text()
    with pytest.raises(ConfigError, match="name or password is wrong"):
        access.sign_in("eve", "long enough password", "here")
    with pytest.raises(ConfigError, match="no account is called 'eve'"):
        access.remove_account("eve")


def test_no_more_than_a_hundred_guesses_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_access, "_key", lambda password, salt: password)  # what is limited is not the hashing
    access = WebAccess(tmp_path)
    tried, now_s = 0, time.monotonic()
    for minute in range(60):
        monkeypatch.setattr(time, "monotonic", lambda at_s=now_s + 61 * minute: at_s)
        for number in range(10):
            try:
                access.sign_in("ada", "wrong", f"10.0.{minute}.{number}")
            except TooManyAttemptsError:
                break
            except ConfigError:
                tried += 1
    assert 5 * 10 < tried <= 100


# -- webhook -------------------------------------------------------------------------------------------------------


class Listener(BaseHTTPRequestHandler):
    """Takes what is posted, after a given number of refusals."""

    taken: ClassVar[list[dict[str, Any]]] = []
    refusals: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status = self.refusals.pop() if self.refusals else 204
        if status == 204:
            self.taken.append(body)
        self.send_response(status)
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_webhook_is_notified_how_a_run_ended_and_is_tried_again(
    directory: WebDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verdict_webhook, "_PAUSE_S", 0.0)
    Listener.taken.clear()
    webhook = Webhook(directory.own)
    jobs = Jobs(directory)
    files = jobs.get(jobs.add("mine", YAML, by="me"))
    ended = JobResult(JobState.DONE, "mine-1", "fail", "", 7)
    notify(files, ended, webhook)  # no address yet
    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/hooks/s3cret"
        Listener.refusals[:] = [302]  # a redirect is not followed
        with pytest.raises(PeerError, match="status 302; it was not kept"):
            webhook.set(address)
        assert webhook.address == ""
        webhook.set(address)
        assert (directory.own / "webhook").stat().st_mode & 0o077 == 0
        Listener.refusals[:] = [503, 500]
        notify(files, ended, webhook)
        Listener.refusals[:] = [503, 503, 503]
        notify(files, ended, webhook)
        server.shutdown()
    said = capsys.readouterr().err
    assert "127.0.0.1 did not accept it: status 503" in said
    assert "s3cret" not in said
    test, told = Listener.taken
    assert test["state"] == "test"
    assert (told["experiment"], told["run"], told["outcome"]) == ("mine", "mine-1", "fail")
    assert told["text"] == "mine: fail (mine-1)"
    for wrong in ("file:///etc/passwd", "http://", "https://a b/", "gopher://x/"):
        with pytest.raises(ConfigError, match="give an address"):
            webhook.set(wrong)
    webhook.set("")
    assert webhook.address == ""
