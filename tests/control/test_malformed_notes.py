"""Payloads that do not fit, of every command: each request is answered, and no process ends or changes.

A client that shares no code with ours sends them to a standing peer, to the process that this has started for a run,
and to a conductor. What a note means to the conductor is also tried without a broker, in every stage of a run.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from crescendo.control.conductor.plan import PeerPlan, RunPlan
from crescendo.control.conductor.step import step
from crescendo.control.conductor.translation import event_from_note
from crescendo.control.notes import Command, Identity, Note, NoteKind
from crescendo.control.trust import Lab
from crescendo.load.assignment import ConnectionSlot, load_assignment
from crescendo.model.experiment_file import experiment_from
from crescendo.run.conductor_loop import ConductorLoop
from crescendo.run.standing_peer import StandingPeer
from crescendo.systems.instance import RunningInstance
from note_examples import NOTIFICATIONS, REQUESTS, RESPONSES, RUN_NAME
from plain_control_client import ENCRYPTED, OK, PlainClient, lab_name
from simulated_run import START, SimulatedRun, plan

TOKEN = "0ddba11" * 8
LIVE_RUN = "feedfacefeedface"
HALT, PING, PROTOCOL_ERROR, INTERNAL_ERROR, ROLE_ASSIGN = 9, 10, 12, 13, 60
REQUEST, RESPONSE, NOTIFICATION = range(3)
NEVER_FITS = [[[]]]
WRONG = [
    None, -1, 2**64 - 1, -(2**63), 1e-300, 1e308, float("inf"), float("nan"), "", "\n", f"{RUN_NAME}\n", "x" * 5000,
    b"\xff", NEVER_FITS, {"a": {"b": 1}}, {7: 7},
]  # fmt: skip
UNREADABLE = [b"\x05", b"\x90", b"\xa1x", b"\x81\x01\x02", b"\x81\xa1\xff\x01", b"\xc0"]
"""MessagePack, but not a map with texts as keys."""

SENDER = Identity("sender-0", "sender", "host", 101)
BATCH = 200  # a broker keeps some hundred messages for one client, not more
TIMEOUT_S = 60.0


def mutations(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The payload with one value, at any depth, that is absent or another one."""
    for key, value in payload.items():
        yield {name: other for name, other in payload.items() if name != key}
        yield from ({**payload, key: wrong} for wrong in WRONG)
        if isinstance(value, dict):
            yield from ({**payload, key: inner} for inner in mutations(value))


def assignment() -> dict[str, Any]:
    experiment = experiment_from({"name": "trial", "workload": {"rate": 10, "protocol": "mqtt"}}, source="test")
    url = {"mqtt": "mqtt://127.0.0.1:9"}  # nobody is there
    return load_assignment(1, url, experiment, [ConnectionSlot(0, "main")], {}, []).to_payload()


def contradictions() -> Iterator[dict[str, Any]]:
    """Assignments of the right types that mean nothing."""
    given = assignment()
    for changes in ({"places": [{"id": 0, "group": "x"}]}, {"urls": {}}, {"answered": {"x": [1]}}, {"tag": 2**63}):
        yield {"assignment": {**given, **changes}}
    for key in given:
        yield {"assignment": {**given, key: NEVER_FITS}}


class Target:
    """A process, as a plain client sees it."""

    def __init__(self, client: PlainClient, peer: str) -> None:
        self.client, self.peer = client, peer
        self.session = client.sessions({peer})[peer]
        self.topic = f"/mpt/{client.scope}/peer/by-id/{peer}"

    def state(self) -> str:
        answer, pong = self.client.ask(self.peer, self.session, PING, {"sec": 2**40, "usec": 0})
        assert answer == PING
        state: str = pong["state"]
        return state

    def answers(self, publish: Callable[[Any], int], given: list[Any]) -> list[tuple[Any, int]]:
        """What was asked, and the command of the one answer."""
        found: list[tuple[Any, int]] = []
        for at in range(0, len(given), BATCH):
            asked = {publish(one): one for one in given[at : at + BATCH]}
            notes = self.client.wait(lambda note, asked=asked: note[1] == RESPONSE and note[3] in asked, len(asked))
            answered = {note[3]: note[2] for note in notes}
            assert answered.keys() == asked.keys()
            found += [(one, answered[correlation]) for correlation, one in asked.items()]
        return found

    def feed(self, skipped: set[Command]) -> list[tuple[tuple[Command, dict[str, Any]], int]]:
        """Send every mutation of every request, and their answers."""
        wrong = [
            (example.command, payload)
            for example in REQUESTS
            if example.command not in skipped
            for payload in mutations({} if example.payload is None else example.payload.to_payload())
        ]
        wrong.append((Command.SET, {"options": {"x" * 900_000: 1}}))  # what the answer quotes must fit into it
        return self.answers(lambda one: self.client.request(self.topic, one[0], one[1], self.session), wrong)

    def feed_unreadable(self) -> list[tuple[Any, int]]:
        """Payloads that are not maps, or cannot be decrypted, for every request; HALT included."""
        requests = {int(example.command) for example in REQUESTS}
        wrong = [(command, content) for command in requests for content in UNREADABLE]
        sealed = (b"", b"x" * 40, self.client.encrypt(b"\x05"))
        wrong += [(command, msgpack.packb({"sealed": one})) for command in ENCRYPTED for one in (*sealed, 5)]
        return self.answers(
            lambda one: self.client.publish(self.topic, REQUEST, one[0], one[1], self.session), wrong
        )  # fmt: skip


def never_fits(payload: dict[str, Any]) -> bool:
    return NEVER_FITS in payload.values()


@pytest.fixture(scope="module")
def lab(mosquitto: RunningInstance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    """A standing peer, and the process of a run that it has started."""
    data = tmp_path_factory.mktemp("malformed")
    standing = StandingPeer(mosquitto.url, Lab(TOKEN), "sender", "sender-a", data)
    thread = threading.Thread(target=standing.run)
    thread.start()
    clients = PlainClient(mosquitto.url, TOKEN, lab_name(TOKEN)), PlainClient(mosquitto.url, TOKEN, LIVE_RUN)
    try:
        waiting = Target(clients[0], "sender-a")
        assert waiting.client.ask("sender-a", waiting.session, ROLE_ASSIGN, {"run": LIVE_RUN, "id": "sender-0"}) == (
            OK,
            {},
        )
        _left_file(data)
        yield waiting, Target(clients[1], "sender-0")
    finally:
        clients[0].request(waiting.topic, HALT, {}, waiting.session)
        thread.join(TIMEOUT_S)
        for client in clients:
            client.close()
    assert not thread.is_alive()


def _left_file(data: Path) -> None:
    """What an earlier run left, and the examples of GET ask for."""
    log = data / RUN_NAME / "logs" / "sender-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("ok\n")


def test_a_standing_peer_answers_whatever_it_is_sent(lab: tuple[Target, Target]) -> None:
    standing, _ = lab
    answers = standing.feed({Command.HALT, Command.ROLE_UNASSIGN})
    assert {answer for (_, payload), answer in answers if never_fits(payload)} <= {PROTOCOL_ERROR, INTERNAL_ERROR}
    assert {answer for _, answer in standing.feed_unreadable()} == {PROTOCOL_ERROR}
    assert standing.state() == "busy"


def test_options_of_any_size_do_not_end_a_standing_peer_when_the_test_starts(lab: tuple[Target, Target]) -> None:
    standing, _ = lab
    asks = [
        (command, payload)
        for options in mutations({"broker": "mqtt://127.0.0.1:9/topic/t", "duration": 1.0, "rate": 1.0})
        for command, payload in ((Command.SET, {"options": options}), (Command.START_SENDER, {"run": RUN_NAME}))
    ]
    answers = standing.answers(lambda one: standing.client.request(standing.topic, *one, standing.session), asks)
    assert {answer for (command, _), answer in answers if command is Command.START_SENDER} == {PROTOCOL_ERROR}
    assert standing.state() == "busy"


def test_a_peer_of_a_run_answers_whatever_it_is_sent(lab: tuple[Target, Target]) -> None:
    _, live = lab
    starts = {command for command in Command if command.name.startswith(("START", "STOP"))}
    assert {answer for _, answer in live.feed_unreadable()} == {PROTOCOL_ERROR}
    answers = live.feed({Command.HALT, *starts})
    assert {answer for (_, payload), answer in answers if never_fits(payload)} <= {PROTOCOL_ERROR, INTERNAL_ERROR}
    wrong = list(contradictions())
    answers = live.answers(lambda one: live.client.request(live.topic, Command.SET, one, live.session), wrong)
    assert {answer for _, answer in answers} == {PROTOCOL_ERROR}
    assert live.state() == "joined"
    answers = live.feed(set(Command) - starts)
    assert {answer for (_, payload), answer in answers if never_fits(payload)} <= {PROTOCOL_ERROR, INTERNAL_ERROR}
    assert live.state() in {"failed", "stopped"}, "it has no assignment"


def test_a_conductor_answers_every_request_and_ignores_what_does_not_fit(mosquitto: RunningInstance) -> None:
    run = "c0ffeec0ffeec0ff"
    peers = (PeerPlan("sender-0", "sender", {}), PeerPlan("receiver-0", "receiver", {}))
    patient_ns = 600 * 10**9
    planned = RunPlan(peers, 0, 10**9, 10**9, {}, gather_ns=patient_ns, lease_ns=patient_ns)
    loop = ConductorLoop(mosquitto.url, Lab(TOKEN).scope_of(run), planned, lambda: None)
    loop.connect()
    over = threading.Event()
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(
            loop.run([], interrupted=over.is_set, watch=lambda _: None, on_event=lambda _: None)
        )
    )
    thread.start()
    client = PlainClient(mosquitto.url, TOKEN, run)
    try:
        client.me = ["sender-0", "sender", "somewhere", 1, 77]  # a peer that has joined, and holds the key
        hello = msgpack.packb({"realtime_offset_ns": 1, "version": "1"})
        client.publish(f"/mpt/{run}/notifications", NOTIFICATION, Command.GROUP_JOIN, hello)
        conductor = Target(client, "conductor")
        for kind, topic, notes in ((RESPONSE, "maestro", RESPONSES), (NOTIFICATION, "notifications", NOTIFICATIONS)):
            for example in notes:
                payload = {} if example.payload is None else example.payload.to_payload()
                wrong = [msgpack.packb({**payload, key: NEVER_FITS}) for key in payload]
                if example.command is Command.GROUP_LEAVE:
                    wrong = []  # it leaves, whatever it says
                for content in (*wrong, *UNREADABLE):
                    client.publish(f"/mpt/{run}/{topic}", kind, example.command, content)
        conductor.feed({Command.HALT})
        assert {answer for _, answer in conductor.feed_unreadable()} == {PROTOCOL_ERROR}
        assert conductor.state() == "gathering"
        assert thread.is_alive()
    finally:
        over.set()
        thread.join(TIMEOUT_S)
        client.close()
        loop.close()
    assert found, "it ended with an ending, not with an error"


def stages() -> Iterator[SimulatedRun]:
    """A run in every stage."""
    for until in ("", "SET", "START_SENDER", "DRAIN", "STOP_RECEIVER"):
        simulated = SimulatedRun(plan(1, 1, inspectors=1, measure_ns=None), share=0.5 if until == "DRAIN" else 1.0)
        if until:
            simulated.join_all()
            simulated.advance(30, until=until)
        yield simulated


def test_no_payload_is_an_error_in_the_conductor_in_any_stage() -> None:
    notes = [
        Note(kind, example.command, correlation, SENDER, payload)
        for kind, examples in ((NoteKind.RESPONSE, RESPONSES), (NoteKind.NOTIFICATION, NOTIFICATIONS))
        for example in examples
        for payload in mutations({} if example.payload is None else example.payload.to_payload())
        for correlation in range(10)  # among them the open request of each stage
    ]
    events = [event for event in (event_from_note(note, START) for note in notes) if event is not None]
    assert len(events) > 100
    for simulated in stages():
        for event in events:
            after, _ = step(simulated.run, event)
            after.phases(simulated.now_ns)
