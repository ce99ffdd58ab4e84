"""Runs of a lab with standing peers on one Mosquitto: two at once, one that waits, one whose rate is changed."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crescendo.control.notes import Command
from crescendo.control.request_payloads import SetRequest
from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError
from crescendo.record.reader import open_recording
from crescendo.run import recruiting
from crescendo.run.lab_client import LabClient
from crescendo.run.lab_view import LabProcess, LabView
from crescendo.systems.instance import RunningInstance
from whole_runs import CRESCENDO, Launcher, Session, launching, write_experiment

TOKEN = "5ec2e7" * 8
RUN = str(Path(__file__).with_name("lab_run.py"))
PEERS = ("sender-a", "sender-b", "receiver-a", "receiver-b")
TABLES = ("sent", "received")
ORPHAN_S = 20.0


class TheLab:
    """Four standing peers, and the files that name broker and token."""

    def __init__(self, directory: Path, url: str, launch: Launcher) -> None:
        self.directory, self.launch = directory, launch
        self.url_file, self.token_file = directory / "control.url", directory / "lab.token"
        for file, text in ((self.url_file, url), (self.token_file, TOKEN)):
            file.write_text(text + "\n")
            file.chmod(0o600)
        self.standing = {name: self._stand(name) for name in PEERS}
        for session in self.standing.values():
            assert session.process.stderr is not None
            assert "waits for runs" in session.process.stderr.readline()
        self.client = LabClient(url, Lab(TOKEN), "test", listen=True)
        self.client.connect(30)
        self.view = LabView(self.client)

    @property
    def access(self) -> list[str]:
        return ["--control-file", str(self.url_file), "--token-file", str(self.token_file)]

    def _stand(self, name: str) -> Session:
        data = self.directory / "data" / name
        return self.launch("peer", name.partition("-")[0], "--id", name, "--data", str(data), *self.access)

    def run(self, name: str, **changes: Any) -> Session:
        """A run with standing peers; its output is its state, its progress is on standard error."""
        path = write_experiment(self.directory / f"{name}.yml", name=name, **changes)
        out = self.directory / name
        return self.launch._start([sys.executable, RUN, str(path), str(out), *self.access[1::2]], out)

    def control(self, *arguments: str) -> Any:
        done = subprocess.run(
            [CRESCENDO, "control", "-", *arguments, *self.access, "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def lab(mosquitto: RunningInstance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TheLab]:
    directory = tmp_path_factory.mktemp("lab")
    with launching(directory) as launch:
        lab = TheLab(directory, mosquitto.url, launch)
        yield lab
        lab.client.close()


def finished(session: Session) -> tuple[str, str]:
    done = session.finish(90)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def rows(session: Session) -> tuple[int, int]:
    recording = open_recording(session.run_dir())
    assert not recording.damaged
    return recording.rows("sent"), recording.rows("received")


def test_two_runs_at_once_pass_and_a_third_waits_and_says_for_whom(lab: TheLab) -> None:
    one = {"workload": {"senders": 1, "receivers": 1, "rate": 300}, "phases": {"warmup": "500ms", "measure": "1s"}}
    payload = lab.directory / "lines.txt"
    payload.write_text("x" * 100 + "\n" + "y" * 200 + "\n")
    from_file = {  # the contents of payloads and of the certificate travel to its peers
        **one,
        "system": {"kind": "mosquitto", "settings": {"tls": True}},
        "workload": {**one["workload"], "protocol": "mqtt", "size": {"file": str(payload)}},
    }
    both = {
        "workload": {"senders": 2, "receivers": 2, "rate": 300},
        "peers": {"senders": 2, "receivers": 2},
        "phases": {"warmup": "500ms", "measure": "8s"},  # long enough to find it and to change its rate
    }
    # Its receiver is slow, so that it drains for seconds.
    draining = {**one, "workload": {**one["workload"], "receive_rate": 150}}
    first, second = lab.run("first", **draining), lab.run("second", **from_file)
    third, earlier = None, set()
    deadline = time.monotonic() + 120
    while third is None:  # as soon as all four are taken
        busy = [peer for peer in lab.view.refresh() if peer.is_standing and peer.state == "busy"]
        assert time.monotonic() < deadline
        if len(busy) == len(PEERS) or first.process.poll() is not None:  # a slow machine may never show all four
            earlier = {peer.scope for peer in lab.view.refresh() if peer.identity.id == "conductor"}
            third = lab.run("third", **both)
    for session in (first, second):
        state, said = finished(session)
        assert state == "sealed", said
        sent, received = rows(session)
        assert sent == received >= 400
    conductor = None
    while conductor is None:
        lab.client.listen(0.2)
        found = [
            one
            for one in lab.view.refresh()
            if one.identity.id == "conductor" and one.state == "running" and one.scope not in earlier
        ]
        conductor = found[0] if found else None
        assert time.monotonic() < deadline
        assert third.process.poll() is None
    change = SetRequest(options={"rate": 600})
    answer = lab.client.ask(lab.client.lab.scope_of(conductor.scope), conductor.identity, Command.SET, change)
    assert answer.command is Command.OK
    state, said = finished(third)
    assert state == "sealed", said
    if "waiting for" in said:
        assert "busy with run" in said
    sent, received = rows(third)
    assert sent == received
    manifest = third.manifest()
    # Two connections at 300 for a while, then at 600: more than at 300 alone, and as many as were due.
    assert 600 < manifest["offered_per_s"] <= 1200
    measure = next(phase for phase in manifest["phases"] if phase["name"] == "measure")
    length_s = (measure["end_ns"] - measure["start_ns"]) / 1e9
    warmup = 2 * 300 * 0.5
    assert sent == pytest.approx(manifest["offered_per_s"] * length_s + warmup, abs=4)
    events = _events(third)
    assert sum(kind == "rate change" for kind, _ in events) == 1
    assert sum(kind == "rate changed" for kind, _ in events) == 2


def test_what_senders_have_sealed_is_fetched_while_the_last_messages_arrive(lab: TheLab) -> None:
    """By when the files were written here, against when messages were received: all of it on one machine."""
    (run_dir,) = (path for path in (lab.directory / "first").iterdir() if not path.is_symlink())
    recording = open_recording(run_dir)
    parts = {table: [run_dir / part.path for part in recording.parts if part.table == table] for table in TABLES}
    last_ns = max(max(pq.read_table(part)["received_ns"].to_pylist()) for part in parts["received"])
    last_ns += time.time_ns() - time.monotonic_ns()
    assert parts["sent"]
    assert all(part.stat().st_mtime_ns < last_ns < time.time_ns() for part in parts["sent"])
    assert all(part.stat().st_mtime_ns > last_ns for part in parts["received"])


def test_peers_are_free_again_have_cleaned_up_and_one_is_halted_by_hand(lab: TheLab) -> None:
    peers = {peer["id"]: peer for peer in lab.control("peers")}
    assert {name: peers[name]["state"] for name in PEERS} == dict.fromkeys(PEERS, "free")
    assert all(peer["lease_left_ns"] > 0 for peer in peers.values())
    assert list((lab.directory / "data").glob("*/*")) == []
    about = lab.client.ask(lab.client.lab.scope, lab.view.find("sender-a").identity, Command.GET)
    assert about.payload["protocol"] == 2
    assert lab.control("halt", "sender-a")["answer"] == "OK"
    assert lab.standing["sender-a"].finish(30).returncode == 0
    answering = {identity.id for identity, _, _ in lab.client.ping(lab.client.lab.scope)}
    assert answering <= set(PEERS) - {"sender-a"}


def test_a_run_that_needs_more_peers_than_there_are_says_how_to_start_one(
    lab: TheLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recruiting, "_TRIES", 1)
    recruits = recruiting.Recruits(lab.client, lab.client.lab.scope_of("0" * 16))
    wanted = {f"sender-{number}": recruiting.WantedPeer("sender") for number in range(3)}
    with pytest.raises(ConfigError, match=r"3 standing sender\(s\), and [12] answer.*crescendo peer sender"):
        recruits.recruit(wanted, lambda _: None, lambda: False)


def test_a_peer_that_crashed_and_came_back_hands_over_what_it_had(lab: TheLab) -> None:
    one = {"workload": {"senders": 1, "receivers": 1, "rate": 300}, "peers": {"senders": [{"on": "sender-b"}]}}
    session = lab.run("crashed", **one, phases={"warmup": "0s", "measure": "60s"})
    conductor = _running(lab, session)
    lab.client.listen(1)  # some messages
    sender = next(one for one in lab.view.refresh() if one.scope == conductor.scope and one.identity.role == "sender")
    scope = lab.client.lab.scope_of(conductor.scope)
    assert lab.client.ask(scope, sender.identity, Command.FLUSH).command is Command.OK  # closes its parts
    data = lab.directory / "data" / "sender-b"
    deadline = time.monotonic() + 30
    while not any('"sent"' in journal.read_text() for journal in data.rglob("sender-0.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    lab.standing["sender-b"].process.kill()
    lab.standing["sender-b"].finish()
    lab.standing["sender-b"] = lab._stand("sender-b")
    state, said = finished(session)
    assert state == "incomplete", said
    recording = open_recording(session.run_dir())
    assert not recording.damaged
    assert recording.rows("sent") >= 100
    assert recording.rows("received") >= 100
    assert "sender-0" in recording.manifest.reason
    assert "missing" not in recording.manifest.reason
    assert list(data.iterdir()) == []  # it has cleaned up


@pytest.mark.soak  # the suite has one peer and a client that is lost: tests/run/test_standing_peer.py
def test_peers_are_free_again_when_their_run_was_killed_before_they_joined_it(lab: TheLab) -> None:
    """They have not heard the last will of their conductor, and nobody asks them for anything."""
    one = {"workload": {"senders": 1, "receivers": 1}, "peers": {"senders": [{"on": "sender-b"}]}}
    session = lab.run("orphans", **one)
    data = lab.directory / "data" / "sender-b"
    deadline = time.monotonic() + 60
    while not list(data.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    session.process.kill()
    killed_s = time.monotonic()
    session.finish()
    taken = True
    while taken:
        assert time.monotonic() - killed_s < ORPHAN_S
        taken = [one for one in lab.view.refresh() if not one.is_standing or one.state == "busy"]
    for standing in lab.standing.values():
        assert not [one for one in standing.family() if one.pid != standing.process.pid]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a small disk")
def test_a_full_disk_of_a_peer_is_one_sentence(lab: TheLab) -> None:
    data = lab.directory / "data" / "sender-full"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(data)], check=True)
    try:
        full = lab._stand("sender-full")
        one = {"workload": {"senders": 1, "receivers": 1, "rate": 300}, "peers": {"senders": [{"on": "sender-full"}]}}
        session = lab.run("full", **one, phases={"warmup": "0s", "measure": "2s"})
        _running(lab, session)
        with contextlib.suppress(OSError), (data / "ballast").open("wb", 0) as ballast:
            while True:
                ballast.write(bytes(4096))
        state, said = finished(session)
        assert state == "incomplete", said
        reason = open_recording(session.run_dir()).manifest.reason
        assert "No space left on device" in reason, reason
        assert "sender-0" in reason
        assert "Traceback" not in said + reason
        (data / "ballast").unlink()
        lab.control("halt", "sender-full")
        full.finish(30)
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


def _running(lab: TheLab, session: Session) -> LabProcess:
    """The conductor of this run, as soon as messages are sent."""
    deadline = time.monotonic() + 60
    while True:
        lab.client.listen(0.1)
        for one in lab.view.refresh():
            if one.identity.pid == session.process.pid and one.state == "running":
                return one
        assert time.monotonic() < deadline
        assert session.process.poll() is None, session.process.communicate()


def _events(session: Session) -> list[tuple[str, str]]:
    import pyarrow.parquet as pq

    found: list[tuple[str, str]] = []
    for part in open_recording(session.run_dir()).parts:
        if part.table == "events":
            table = pq.read_table(session.run_dir() / part.path, columns=["kind", "detail"])
            found += list(zip(table["kind"].to_pylist(), table["detail"].to_pylist(), strict=True))
    return found
