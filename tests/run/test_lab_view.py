"""Which processes of a lab are found, by the order in which their answers come. No broker: a schedule of answers."""

import pytest

from crescendo.control.notes import Command, Identity, Note, NoteKind
from crescendo.control.request_payloads import Pong
from crescendo.control.trust import Lab, NoteScope
from crescendo.model.errors import ConfigError
from crescendo.run.lab_client import LabClient
from crescendo.run.lab_view import LabView

RUN = "c25fe4e308c693d2"
STANDING = Identity("sender-a", "sender", "here", 1, 1)
IN_A_RUN = Identity("sender-a", "sender", "here", 2, 2)


class Schedule(LabClient):
    """The standing peer always answers; the process of the run is heard, and answers, after that many questions."""

    def __init__(self, heard_after: int, answers_after: int) -> None:
        self.lab = Lab("t0ken" * 10)
        self.heard_after, self.answers_after = heard_after, answers_after
        self.questions = 0

    def ping(
        self, scope: NoteScope, timeout_s: float = 0.0, enough: int | None = None
    ) -> list[tuple[Identity, Pong, int]]:
        pong = Pong(0, 0, 0, 0, 0, "running")
        if scope.name != RUN:
            self.questions += 1
            return [(STANDING, pong, 10)]
        return [(IN_A_RUN, pong, 10)] if self.questions > self.answers_after else []

    def listen(self, timeout_s: float) -> None:
        if self.questions >= self.heard_after:
            self.on_notification(Note(NoteKind.NOTIFICATION, Command.NOTIFY_SUCCESS, 0, IN_A_RUN, {}, 0, RUN))


@pytest.mark.parametrize(("heard_after", "answers_after"), [(0, 0), (0, 2), (2, 0), (1, 2)])
def test_a_process_of_a_run_is_found_although_a_standing_peer_of_its_name_answers_first(
    heard_after: int, answers_after: int
) -> None:
    view = LabView(Schedule(heard_after, answers_after))
    view.discover()
    assert view.find(f"{RUN}/sender-a").identity == IN_A_RUN
    assert view.find("sender-a").identity == STANDING


def test_a_process_that_never_answers_is_not_found() -> None:
    view = LabView(Schedule(heard_after=0, answers_after=100))
    view.discover()
    with pytest.raises(ConfigError, match="no process of this lab is called"):
        view.find(f"{RUN}/sender-a")
