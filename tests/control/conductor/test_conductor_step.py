"""The conductor's promises, in virtual time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.control.conductor.commands import SendRequest
from crescendo.control.conductor.events import PeerAnswered, PeerJoined, PeerLost, PeerReported
from crescendo.control.conductor.step import step
from crescendo.control.notes import Command, Failure, Hello, Identity, Statistics
from simulated_run import ADDRESS, DELIVER, DROP, LATE, MS, SECOND, START, TWICE, Orchestra, plan

SENDERS = ("sender-0", "sender-1")
RECEIVERS = ("receiver-0", "receiver-1")


def started(**changes: object) -> Orchestra:
    """An orchestra one second into the measure phase."""
    orchestra = Orchestra(plan(2, 2, **changes))
    orchestra.join_all()
    orchestra.play(10, until="START_SENDER")
    orchestra.play(2.3)
    assert orchestra.ending is None
    return orchestra


def test_an_undisturbed_run_passes_every_stage_in_order_and_is_sealed() -> None:
    orchestra = Orchestra(plan(2, 2))
    orchestra.join_all()
    orchestra.play(60)
    outcome = orchestra.ending
    assert outcome is not None
    assert (outcome.state, outcome.reason, outcome.fault, outcome.stage) == ("sealed", "", None, "after barrier")
    assert orchestra.ended() == dict.fromkeys((*RECEIVERS, *SENDERS), "finished")
    names = [command.command.name for _, command in orchestra.commands if isinstance(command, SendRequest)]
    assert names == [
        "SET", "SET", "SET", "SET", "START_RECEIVER", "START_RECEIVER", "START_SENDER", "START_SENDER",
        "DRAIN", "DRAIN", "STOP_SENDER", "STOP_SENDER", "STOP_RECEIVER", "STOP_RECEIVER",
        "HALT", "HALT", "HALT", "HALT",
    ]  # fmt: skip
    assert [peer.statistics.messages for peer in outcome.peers if peer.statistics] == [3000, 3000, 3000, 3000]


def test_the_phases_follow_the_plan_and_end_with_the_run() -> None:
    orchestra = Orchestra(plan())
    orchestra.join_all()
    orchestra.play(60)
    outcome = orchestra.ending
    assert outcome is not None
    t0_ns = outcome.t0_ns
    assert t0_ns == orchestra.asked("START_SENDER")[0] + 300 * MS
    (warmup, measure, drain) = outcome.phases
    assert warmup == ("warmup", t0_ns, t0_ns + SECOND)
    assert measure == ("measure", t0_ns + SECOND, t0_ns + 3 * SECOND)
    assert drain[:2] == ("drain", t0_ns + 3 * SECOND)
    assert drain[2] >= orchestra.asked("STOP_RECEIVER")[0]


def test_without_warmup_there_is_no_warmup_phase() -> None:
    orchestra = Orchestra(plan(warmup_ns=0))
    orchestra.join_all()
    orchestra.play(60)
    assert orchestra.ending is not None
    assert [name for name, _, _ in orchestra.ending.phases] == ["measure", "drain"]


def test_a_count_ends_its_measure_phase_after_the_last_message() -> None:
    orchestra = Orchestra(plan(measure_ns=None))
    orchestra.join_all()
    orchestra.play(60)
    assert orchestra.ending is not None
    assert orchestra.ending.t0_ns is not None
    measure = next(phase for phase in orchestra.ending.phases if phase[0] == "measure")
    assert measure[2] == orchestra.ending.t0_ns + 3 * SECOND + 1  # the orchestra's last_sent_ns, and one


def test_nobody_starts_until_everybody_is_ready() -> None:
    orchestra = Orchestra(plan(2, 2))
    orchestra.deaf.add(("sender-1", Command.SET))
    orchestra.join_all()
    orchestra.play(15)
    assert not orchestra.asked("START_RECEIVER")
    assert not orchestra.asked("START_SENDER")


def test_senders_are_prepared_only_after_every_receiver_is_attached() -> None:
    orchestra = Orchestra(plan(2, 2))
    orchestra.deaf.add(("receiver-1", Command.SET))
    orchestra.join_all()
    orchestra.play(15)
    assert orchestra.asked("SET", "receiver-1")
    assert not orchestra.asked("SET", "sender-0")


@pytest.mark.parametrize("fault", ["config", "peer", "lost"])
@pytest.mark.parametrize("peer", ["receiver-0", "sender-1"])
def test_a_refusal_before_the_barrier_ends_the_run_at_once_with_its_own_words(peer: str, fault: str) -> None:
    orchestra = Orchestra(plan(2, 2))
    orchestra.refusals[peer, Command.SET] = Failure("amqp://x: connection refused", fault)  # type: ignore[arg-type]
    orchestra.join_all()
    orchestra.play(1)
    outcome = orchestra.ending
    assert outcome is not None
    assert (outcome.state, outcome.stage, outcome.fault) == ("refused", "before barrier", fault)
    assert outcome.reason == "amqp://x: connection refused"
    assert (outcome.t0_ns, outcome.phases) == (None, ())
    assert len(orchestra.asked("HALT")) == 4
    assert orchestra.ended()[peer] == "failed"


def test_a_peer_that_never_joins_is_named() -> None:
    orchestra = Orchestra(plan(2, 2))
    for peer in RECEIVERS:
        orchestra.feed(PeerJoined(peer, Identity(peer, "receiver", "h", 1), Hello(0, "1"), START))
    orchestra.play(30)
    outcome = orchestra.ending
    assert outcome is not None
    assert (outcome.state, outcome.fault) == ("refused", "lost")
    assert outcome.reason == "sender-0, sender-1 did not join within 20 s"


def test_a_peer_that_connects_slowly_keeps_its_place_beyond_the_lease() -> None:
    orchestra = Orchestra(plan())
    orchestra.deaf.add(("sender-0", Command.SET))
    orchestra.silent.add("sender-0")
    orchestra.join_all()
    orchestra.play(15)
    assert orchestra.ending is None
    orchestra.play(10)
    assert orchestra.ending is not None
    assert (orchestra.ending.state, orchestra.ending.fault) == ("refused", "peer")
    assert orchestra.ending.reason == "sender-0 did not get ready within 20 s"


def test_a_peer_lost_before_the_barrier_is_nobodys_configuration_error() -> None:
    orchestra = Orchestra(plan())
    orchestra.deaf.add(("sender-0", Command.SET))
    orchestra.join_all()
    orchestra.play(1)
    orchestra.kill("sender-0")
    assert orchestra.ending is not None
    assert (orchestra.ending.state, orchestra.ending.fault) == ("refused", "lost")
    assert orchestra.ending.reason.startswith("lost sender-0: ")


@pytest.mark.parametrize("will", [True, False])
@pytest.mark.parametrize("peer", ["sender-0", "receiver-1"])
def test_losing_a_peer_after_the_barrier_is_incomplete_and_names_it(peer: str, will: bool) -> None:
    orchestra = started(measure_ns=60 * SECOND)
    lost_ns = orchestra.now_ns
    orchestra.kill(peer, will=will)
    orchestra.play(60)
    outcome = orchestra.ending
    assert outcome is not None
    assert (outcome.state, outcome.fault) == ("incomplete", "lost")
    assert outcome.reason.startswith(f"lost {peer}: ")
    assert orchestra.now_ns - lost_ns <= (3 if will else 10) * SECOND
    assert orchestra.ended()[peer] == "lost"
    assert orchestra.ended()["sender-1"] == "stopped"
    assert orchestra.asked("STOP_SENDER", "sender-1")[0] <= orchestra.asked("DRAIN")[0]
    # The measure phase ends where sending was cut, not where the plan would have ended it.
    assert next(phase for phase in outcome.phases if phase[0] == "measure")[2] <= orchestra.asked("STOP_SENDER")[0]


def test_after_a_loss_the_drain_lasts_half_a_second_at_most() -> None:
    orchestra = Orchestra(plan(2, 2, measure_ns=60 * SECOND, drain_ns=30 * SECOND), share=0.5)
    orchestra.join_all()
    orchestra.play(3)
    orchestra.kill("sender-0")
    lost_ns = orchestra.now_ns
    orchestra.play(60)
    assert orchestra.asked("STOP_RECEIVER")[0] - lost_ns == SECOND // 2


def test_a_loss_is_not_forgotten_when_everything_else_goes_well() -> None:
    orchestra = started()
    orchestra.kill("receiver-0")
    orchestra.feed(
        PeerJoined("receiver-0", Identity("receiver-0", "receiver", "h", 99), Hello(0, "1"), orchestra.now_ns)
    )  # it came back
    orchestra.feed(PeerReported("receiver-0", orchestra.statistics("receiver-0"), orchestra.now_ns))
    orchestra.play(60)
    assert orchestra.ending is not None
    assert orchestra.ending.state == "incomplete"
    assert orchestra.ended()["receiver-0"] == "lost"


def test_a_sender_that_dies_after_finishing_may_have_lost_its_last_rows() -> None:
    orchestra = started(drain_ns=20 * SECOND)
    orchestra.play(60, until="DRAIN")
    orchestra.kill("sender-1")
    orchestra.play(60)
    assert orchestra.ending is not None
    assert orchestra.ending.state == "incomplete"


def test_a_peer_whose_recording_is_closed_may_go() -> None:
    orchestra = started()
    orchestra.deaf.add(("receiver-0", Command.STOP_RECEIVER))
    orchestra.play(60, until="STOP_RECEIVER")
    orchestra.play(0.2)
    assert ("sender-0", Command.STOP_SENDER) in orchestra.accepted
    orchestra.feed(PeerLost("sender-0", "gone", orchestra.now_ns))
    assert orchestra.marks("lost") == []
    orchestra.play(10)
    assert orchestra.ended()["sender-0"] == "finished"


def test_a_peer_that_does_not_stop_is_lost_and_the_run_incomplete() -> None:
    orchestra = started()
    orchestra.deaf.add(("receiver-1", Command.STOP_RECEIVER))
    orchestra.play(60)
    assert orchestra.ending is not None
    assert orchestra.ending.state == "incomplete"
    assert orchestra.ending.reason == "lost receiver-1: did not stop within 3 s"


def test_a_peer_that_the_system_dropped_is_a_result_not_a_loss() -> None:
    orchestra = started()
    orchestra.fail("sender-0", "peer")
    orchestra.feed(PeerLost("sender-0", "its process ended", orchestra.now_ns))
    orchestra.play(60)
    outcome = orchestra.ending
    assert outcome is not None
    assert (outcome.state, outcome.fault) == ("sealed", None)
    assert orchestra.ended() == {
        "receiver-0": "finished", "receiver-1": "finished", "sender-0": "failed", "sender-1": "finished",
    }  # fmt: skip
    assert outcome.peers[2].reason == "the system closed the connection"
    assert [mark.detail["peer"] for mark in orchestra.marks("failed")] == ["sender-0"]


def test_a_peer_that_no_longer_knows_what_it_did_counts_as_lost() -> None:
    orchestra = started()
    orchestra.fail("receiver-0", "lost")
    orchestra.play(60)
    assert orchestra.ending is not None
    assert orchestra.ending.state == "incomplete"
    assert orchestra.ending.reason == "lost receiver-0: the system closed the connection"


def test_when_every_receiver_failed_nobody_waits_for_messages() -> None:
    orchestra = started(drain_ns=30 * SECOND)
    for peer in RECEIVERS:
        orchestra.fail(peer, "peer")
    orchestra.play(60)
    assert orchestra.asked("STOP_SENDER")[0] - orchestra.marks("draining")[0].t_ns < SECOND


@pytest.mark.parametrize("obedient", [True, False])
def test_an_interrupted_run_ends_within_the_time_to_stop(obedient: bool) -> None:
    orchestra = started(measure_ns=60 * SECOND)
    if not obedient:
        orchestra.deaf.add(("sender-0", Command.STOP_SENDER))
    orchestra.interrupt()
    interrupted_ns = orchestra.now_ns
    assert len(orchestra.asked("STOP_SENDER")) == len(orchestra.asked("STOP_RECEIVER")) == 2
    orchestra.play(60)
    outcome = orchestra.ending
    assert outcome is not None
    assert (outcome.state, outcome.reason) == ("interrupted", "interrupted")
    assert orchestra.now_ns - interrupted_ns <= (0.2 if obedient else 3.2) * SECOND
    assert orchestra.ended()["receiver-0"] == "stopped"
    assert orchestra.ended()["sender-0"] == ("stopped" if obedient else "lost")
    assert next(phase for phase in outcome.phases if phase[0] == "measure")[2] == interrupted_ns


def test_an_interruption_before_the_barrier_leaves_no_phases() -> None:
    orchestra = Orchestra(plan())
    orchestra.interrupt()
    assert orchestra.ending is not None
    assert (orchestra.ending.state, orchestra.ending.stage) == ("interrupted", "before barrier")
    assert (orchestra.ending.t0_ns, orchestra.ending.phases) == (None, ())
    assert len(orchestra.asked("HALT")) == 2


def test_an_interruption_between_barrier_and_start_gives_no_backward_phase() -> None:
    orchestra = Orchestra(plan())
    orchestra.join_all()
    orchestra.play(10, until="START_SENDER")
    orchestra.interrupt()
    orchestra.play(10)
    assert orchestra.ending is not None
    assert all(start_ns <= end_ns for _, start_ns, end_ns in orchestra.ending.phases)
    assert "warmup" not in [name for name, _, _ in orchestra.ending.phases]


def test_the_drain_waits_for_what_is_owed_and_a_grace_for_duplicates() -> None:
    orchestra = started(drain_ns=30 * SECOND)
    orchestra.play(60)
    drained_ns = orchestra.asked("STOP_RECEIVER")[0] - orchestra.asked("DRAIN")[0]
    assert 300 * MS <= drained_ns <= 700 * MS


@pytest.mark.parametrize("fan_out", [1, 3])
def test_the_drain_ends_in_time_when_messages_are_missing(fan_out: int) -> None:
    orchestra = Orchestra(plan(fan_out={ADDRESS: fan_out}), share=0.5)
    orchestra.join_all()
    orchestra.play(60)
    assert orchestra.asked("STOP_RECEIVER")[0] - orchestra.asked("DRAIN")[0] == 5 * SECOND
    assert orchestra.ending is not None
    assert orchestra.ending.state == "sealed"  # the ledger will tell; the recording is whole


def test_a_topic_owes_each_subscription_every_message() -> None:
    once, twice = (Orchestra(plan(fan_out={ADDRESS: 2}), share=share) for share in (0.5, 1.0))
    for orchestra in (once, twice):
        orchestra.join_all()
        orchestra.play(60)
    assert once.asked("STOP_RECEIVER")[0] - once.asked("DRAIN")[0] == 5 * SECOND
    assert twice.asked("STOP_RECEIVER")[0] - twice.asked("DRAIN")[0] < SECOND


def test_senders_that_overrun_are_stopped_and_the_reason_is_kept() -> None:
    orchestra = Orchestra(plan())
    orchestra.endless.add("sender-0")
    orchestra.join_all()
    orchestra.play(60)
    outcome = orchestra.ending
    assert outcome is not None
    assert outcome.t0_ns is not None
    assert 8 * SECOND < orchestra.asked("STOP_SENDER")[0] - outcome.t0_ns <= 8.2 * SECOND
    assert (outcome.state, outcome.reason) == ("sealed", "senders had not finished 5 s after the measure phase")
    assert orchestra.ended()["sender-0"] == "stopped"


def test_a_count_that_stalls_is_stopped() -> None:
    orchestra = Orchestra(plan(measure_ns=None))
    orchestra.endless.add("sender-0")
    orchestra.join_all()
    orchestra.play(60)
    outcome = orchestra.ending
    assert outcome is not None
    assert outcome.t0_ns is not None
    # The simulated sender sends for three seconds, and then nothing moves any more.
    assert 13 * SECOND < orchestra.asked("STOP_SENDER")[0] - outcome.t0_ns <= 13.3 * SECOND
    assert outcome.reason == "no message was sent or received for 10 s"


def test_a_sender_that_ignores_stop_is_lost() -> None:
    orchestra = Orchestra(plan())
    orchestra.endless.add("sender-0")
    orchestra.deaf.add(("sender-0", Command.STOP_SENDER))
    orchestra.join_all()
    orchestra.play(60)
    assert orchestra.ending is not None
    assert (orchestra.ending.state, orchestra.ended()["sender-0"]) == ("incomplete", "lost")


def test_heartbeats_heard_late_still_count_before_the_next_tick() -> None:
    """The conductor's own process was stopped for a minute: what was said meanwhile is heard first."""
    orchestra = started(measure_ns=600 * SECOND)
    orchestra.now_ns += 60 * SECOND
    for peer in (*RECEIVERS, *SENDERS):
        orchestra.feed(PeerReported(peer, orchestra.statistics(peer), orchestra.now_ns))
    orchestra.play(1)
    assert orchestra.marks("lost") == []


def test_strangers_and_old_answers_change_nothing() -> None:
    orchestra = started()
    before = orchestra.run
    stranger = Identity("sender-7", "sender", "h", 1)
    for event in (
        PeerJoined("sender-7", stranger, Hello(0, "1"), orchestra.now_ns),
        PeerLost("sender-7", "gone", orchestra.now_ns),
        PeerReported("sender-7", Statistics(orchestra.now_ns), orchestra.now_ns),
        PeerAnswered("sender-0", 1, Command.PROTOCOL_ERROR, False, Failure("old", "peer"), None, orchestra.now_ns),
        PeerJoined("sender-0", Identity("sender-0", "sender", "elsewhere", 5), Hello(0, "1"), orchestra.now_ns),
    ):
        assert step(before, event) == (before, ())


def test_an_old_answer_that_is_repeated_does_not_answer_the_open_request() -> None:
    orchestra = started()
    orchestra.deaf.add(("receiver-1", Command.STOP_RECEIVER))
    old = next(
        command.correlation
        for _, command in orchestra.commands
        if isinstance(command, SendRequest) and (command.peer, command.command.name) == ("receiver-1", "START_RECEIVER")
    )
    orchestra.play(60, until="STOP_RECEIVER")
    orchestra.feed(PeerAnswered("receiver-1", old, Command.OK, True, None, None, orchestra.now_ns))
    orchestra.play(60)
    assert orchestra.ended()["receiver-1"] == "lost"


def test_statistics_that_arrive_out_of_order_do_not_turn_back_the_count() -> None:
    orchestra = started()
    newest = orchestra.statistics("sender-0")
    orchestra.feed(PeerReported("sender-0", newest, orchestra.now_ns))
    orchestra.feed(PeerReported("sender-0", Statistics(newest.t_ns - SECOND, {ADDRESS: 1}, 1), orchestra.now_ns))
    orchestra.interrupt()
    orchestra.deaf.add(("sender-0", Command.STOP_SENDER))
    assert orchestra.run.peers["sender-0"].statistics == newest


FATES = st.lists(st.sampled_from([DELIVER, DELIVER, DELIVER, DROP, TWICE, LATE]), max_size=80)
KILLS = st.dictionaries(
    st.sampled_from((*RECEIVERS, *SENDERS)), st.tuples(st.integers(0, 90), st.booleans()), max_size=2
)


@settings(max_examples=150, deadline=None)
@given(fates=FATES, kills=KILLS, interrupt_at=st.none() | st.integers(0, 90), counted=st.booleans())
def test_whatever_the_network_does_the_end_comes_and_is_honest(
    fates: list[str], kills: dict[str, tuple[int, bool]], interrupt_at: int | None, counted: bool
) -> None:
    orchestra = Orchestra(plan(2, 2, measure_ns=None if counted else 2 * SECOND), fates)
    orchestra.join_all()
    for tick in range(1200):
        if orchestra.ending is not None:
            break
        if interrupt_at == tick:
            orchestra.interrupt()
        for peer, (at, will) in kills.items():
            if at == tick and orchestra.ending is None:
                orchestra.kill(peer, will=will)
        orchestra.play(0.1)
        if orchestra.asked("START_SENDER"):
            assert {peer for peer, command in orchestra.accepted if command is Command.SET} == set(orchestra.roles)
    outcome = orchestra.ending
    assert outcome is not None, "two minutes are more than all deadlines together"
    closed = {peer for peer, command in orchestra.accepted if command in {Command.STOP_SENDER, Command.STOP_RECEIVER}}
    if orchestra.dead.keys() - closed:
        assert outcome.state != "sealed"
    if outcome.state == "incomplete":
        assert any(peer.ended == "lost" and outcome.reason.startswith(f"lost {peer.id}: ") for peer in outcome.peers)
    if outcome.state == "sealed":
        assert all(peer.ended != "lost" for peer in outcome.peers)
    assert (outcome.stage == "before barrier") == (not orchestra.asked("START_SENDER"))
    assert all(start_ns <= end_ns for _, start_ns, end_ns in outcome.phases)
    correlations = [command.correlation for _, command in orchestra.commands if isinstance(command, SendRequest)]
    assert correlations == list(range(1, len(correlations) + 1))
    orchestra.interrupt()  # late notes are ignored: feed() refuses commands after the end
    for peer in orchestra.roles:
        orchestra.feed(PeerLost(peer, "late", orchestra.now_ns))


def test_the_same_events_give_the_same_commands() -> None:
    def commands() -> list[object]:
        orchestra = Orchestra(plan(2, 2))
        orchestra.join_all()
        orchestra.play(60)
        return list(orchestra.commands)

    assert commands() == commands()


def test_inspectors_are_ready_before_senders_connect_and_watch_until_everything_arrived() -> None:
    orchestra = Orchestra(plan(inspectors=2))
    orchestra.join_all()
    orchestra.play(60)
    assert orchestra.ending is not None
    assert orchestra.ending.state == "sealed"
    assert set(orchestra.ended().values()) == {"finished"}
    (ready_ns,) = {t_ns for n in range(2) for t_ns in orchestra.asked("SET", f"inspector-{n}")}
    assert orchestra.asked("SET", "sender-0") > [ready_ns]
    assert len(orchestra.asked("START_INSPECTOR")) == 2
    assert orchestra.asked("STOP_INSPECTOR") >= orchestra.asked("STOP_RECEIVER")


def test_a_lost_inspector_leaves_the_run_as_it_is() -> None:
    orchestra = Orchestra(plan(inspectors=1))
    orchestra.join_all()
    orchestra.play(10, until="START_SENDER")
    orchestra.play(2)
    orchestra.kill("inspector-0")
    orchestra.play(60)
    assert orchestra.ending is not None
    assert (orchestra.ending.state, orchestra.ending.reason) == ("sealed", "")
    assert orchestra.ended() == {"receiver-0": "finished", "sender-0": "finished", "inspector-0": "lost"}
    (mark,) = orchestra.marks("lost")
    assert mark.detail["peer"] == "inspector-0"


def test_a_silent_inspector_is_lost_with_its_lease_and_the_run_goes_on() -> None:
    orchestra = Orchestra(plan(inspectors=1, measure_ns=20 * SECOND))
    orchestra.join_all()
    orchestra.play(10, until="START_SENDER")
    orchestra.silent.add("inspector-0")
    orchestra.dead["inspector-0"] = orchestra.now_ns
    orchestra.play(60)
    assert orchestra.ending is not None
    assert orchestra.ending.state == "sealed"
    assert orchestra.ended()["inspector-0"] == "lost"


def test_a_system_that_cannot_be_inspected_is_said_before_anything_is_sent() -> None:
    orchestra = Orchestra(plan(inspectors=1))
    orchestra.refusals["inspector-0", Command.SET] = Failure("inspector-0: 401 Unauthorized", "peer")
    orchestra.join_all()
    orchestra.play(60)
    assert orchestra.ending is not None
    assert (orchestra.ending.state, orchestra.ending.stage) == ("refused", "before barrier")
    assert orchestra.ending.reason == "inspector-0: 401 Unauthorized"
    assert not orchestra.asked("START_SENDER")


def test_a_latency_beyond_its_limit_ends_the_whole_run_at_once() -> None:
    orchestra = Orchestra(plan(2, 2, measure_ns=60 * SECOND, stop_when={"response_p90": 200 * MS}))
    orchestra.join_all()
    orchestra.seen = {"second_response_p90_ns": 200.0 * MS}
    orchestra.play(5)
    assert not orchestra.marks("limit exceeded"), "at the limit is not beyond it"
    orchestra.seen = {"second_response_p90_ns": 201.0 * MS}
    orchestra.play(30)
    (mark,) = orchestra.marks("limit exceeded")
    assert mark.detail["value_ns"] == 201 * MS
    assert orchestra.asked("STOP_SENDER") == [mark.t_ns, mark.t_ns]
    assert len(orchestra.asked("STOP_RECEIVER")) == 2
    assert max(orchestra.asked("STOP_RECEIVER")) - mark.t_ns <= SECOND
    outcome = orchestra.ending
    assert outcome is not None
    assert [mark.detail for mark in orchestra.marks("stopping")] == [{"everything_arrived": True}]
    assert (outcome.state, outcome.exceeded and outcome.exceeded.metric) == ("sealed", "response_p90")


def test_after_a_limit_was_passed_what_is_on_its_way_has_the_drain_to_arrive() -> None:
    orchestra = Orchestra(
        plan(measure_ns=60 * SECOND, drain_ns=5 * SECOND, stop_when={"response_max": SECOND}), share=0.5
    )
    orchestra.join_all()
    orchestra.seen = {"second_response_max_ns": 2.0 * SECOND}
    orchestra.play(30)
    (mark,) = orchestra.marks("limit exceeded")
    assert min(orchestra.asked("STOP_RECEIVER")) - mark.t_ns >= 5 * SECOND
    assert orchestra.ending is not None
    name, start_ns, end_ns = orchestra.ending.phases[1]
    assert (name, end_ns) == ("measure", mark.t_ns)
    assert start_ns < end_ns


def test_what_happens_in_the_warmup_ends_nothing() -> None:
    orchestra = Orchestra(plan(warmup_ns=20 * SECOND, stop_when={"response_max": MS}))
    orchestra.join_all()
    orchestra.seen = {"second_response_max_ns": 5.0 * SECOND}
    orchestra.play(15)
    assert not orchestra.marks("limit exceeded")
    orchestra.seen = {}
    orchestra.play(30)
    assert orchestra.ending is not None
    assert orchestra.ending.exceeded is None
