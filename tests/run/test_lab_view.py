"""Which processes of a lab are found, by the order in which their answers come. No broker: a schedule of answers."""

import pytest

from crescendo.control.notes import Command, Identity, Note, NoteKind
from crescendo.control.peer import CONDUCTOR
from crescendo.control.request_payloads import Pong
from crescendo.control.trust import Lab, NoteScope
from crescendo.model.errors import ConfigError
from crescendo.run import lab_view
from crescendo.run.lab_client import LabClient
from crescendo.run.lab_view import LabView

RUN = "c25fe4e308c693d2"
STANDING = Identity("sender-a", "sender", "here", 1, 1)
IN_A_RUN = Identity("sender-a", "sender", "here", 2, 2)
CONDUCTING = Identity(CONDUCTOR, CONDUCTOR, "here", 3, 3)
NEVER = 1_000_000_000


class Clock:
    """Passes only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1e9)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lab_view, "time", clock)
    return clock


class Schedule(LabClient):
    """Each process answers after a number of questions to the lab; that of the run is heard of after another."""

    def __init__(
        self,
        clock: Clock,
        *,
        heard_after: int = 0,
        answers_after: int = 0,
        standing_after: int = 0,
        conducted: bool = False,
    ) -> None:
        self.clock = clock
        self.lab = Lab("t0ken" * 10)
        self.heard_after, self.answers_after, self.standing_after = heard_after, answers_after, standing_after
        self.conducted = conducted
        self.names_its_run = False
        self.questions = 0

    def ping(
        self, scope: NoteScope, timeout_s: float = 0.0, enough: int | None = None
    ) -> list[tuple[Identity, Pong, int]]:
        self.clock.now_s += timeout_s
        pong = Pong(0, 0, 0, 0, 0, "running")
        if scope.name != RUN:
            self.questions += 1
            busy = Pong(0, 0, 0, 0, 0, "busy", RUN if self.names_its_run else "")
            return [(STANDING, busy, 10)] if self.questions > self.standing_after else []
        answers = [(IN_A_RUN, pong, 10)] if self.questions > self.answers_after else []
        return answers + ([(CONDUCTING, pong, 10)] if self.conducted else [])

    def listen(self, timeout_s: float) -> None:
        self.clock.now_s += timeout_s
        if self.questions >= self.heard_after:
            self.on_notification(Note(NoteKind.NOTIFICATION, Command.NOTIFY_SUCCESS, 0, IN_A_RUN, {}, 0, RUN))


@pytest.mark.parametrize(("heard_after", "answers_after"), [(0, 0), (0, 2), (2, 0), (1, 2)])
def test_a_process_of_a_run_is_found_although_a_standing_peer_of_its_name_answers_first(
    clock: Clock, heard_after: int, answers_after: int
) -> None:
    view = LabView(Schedule(clock, heard_after=heard_after, answers_after=answers_after))
    view.discover()
    assert view.find(f"{RUN}/sender-a").identity == IN_A_RUN
    assert view.find("sender-a").identity == STANDING


@pytest.mark.parametrize("standing_after", [0, 1, 3])
def test_a_standing_peer_is_found_although_its_process_in_a_test_by_hand_answers_first(
    clock: Clock, standing_after: int
) -> None:
    view = LabView(Schedule(clock, standing_after=standing_after))
    view.discover()
    assert view.find("sender-a").identity == STANDING


@pytest.mark.parametrize("answers_after", [0, 1, 3])
def test_a_process_is_found_in_the_run_that_its_standing_peer_names(clock: Clock, answers_after: int) -> None:
    schedule = Schedule(clock, heard_after=NEVER, answers_after=answers_after)
    schedule.names_its_run = True
    view = LabView(schedule)
    assert [one.identity for one in view.find_all(["sender-a"], standing_first=False)] == [IN_A_RUN]


def test_a_peer_of_a_run_without_standing_peers_is_found_at_once(clock: Clock) -> None:
    schedule = Schedule(clock, standing_after=NEVER, conducted=True)
    view = LabView(schedule)
    view.discover()
    assert view.find("sender-a").identity == IN_A_RUN
    assert schedule.questions == 1


def test_a_process_whose_standing_peer_never_answers_is_found_after_a_lease(clock: Clock) -> None:
    view = LabView(Schedule(clock, standing_after=NEVER))
    view.discover()
    assert view.find("sender-a").identity == IN_A_RUN


def test_a_process_that_never_answers_is_not_found(clock: Clock) -> None:
    view = LabView(Schedule(clock, answers_after=NEVER))
    view.discover()
    with pytest.raises(ConfigError, match="no process of this lab is called"):
        view.find(f"{RUN}/sender-a")
