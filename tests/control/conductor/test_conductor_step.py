"""Does the conductor keep its promises? In virtual time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.control.conductor.commands import SendRequest
from crescendo.control.conductor.events import (
    ControlLost,
    PeerAnswered,
    PeerJoined,
    PeerLost,
    PeerReported,
    SystemBroken,
)
from crescendo.control.conductor.step import step
from crescendo.control.notes import Command, Failure, Hello, Identity, Statistics
from simulated_run import ADDRESS, DELIVER, DROP, LATE, MS, SECOND, START, TWICE, SimulatedRun, plan

SENDERS = ("sender-0", "sender-1")
RECEIVERS = ("receiver-0", "receiver-1")


def started(**changes: object) -> SimulatedRun:
    """A run one second into the measure phase."""
    simulated = SimulatedRun(plan(2, 2, **changes))
    simulated.join_all()
    simulated.advance(10, until="START_SENDER")
    simulated.advance(2.3)
    assert simulated.ending is None
    return simulated


def test_an_undisturbed_run_passes_every_stage_in_order_and_is_sealed() -> None:
    simulated = SimulatedRun(plan(2, 2))
    simulated.join_all()
    simulated.advance(60)
    ending = simulated.ending
    assert ending is not None
    assert (ending.state, ending.reason, ending.fault, ending.stage) == ("sealed", "", None, "after barrier")
    assert simulated.ended() == dict.fromkeys((*RECEIVERS, *SENDERS), "finished")
    names = [command.command.name for _, command in simulated.commands if isinstance(command, SendRequest)]
    assert names == [
        "SET", "SET", "SET", "SET", "START_RECEIVER", "START_RECEIVER", "START_SENDER", "START_SENDER",
        "DRAIN", "DRAIN", "STOP_SENDER", "STOP_SENDER", "STOP_RECEIVER", "STOP_RECEIVER",
        "HALT", "HALT", "HALT", "HALT",
    ]  # fmt: skip
    assert [peer.statistics.messages for peer in ending.peers if peer.statistics] == [3000, 3000, 3000, 3000]


def test_without_a_control_broker_a_run_ends_at_once_with_what_it_has() -> None:
    simulated = started()
    simulated.feed(ControlLost("the broker is gone", simulated.now_ns))
    ending = simulated.ending
    assert ending is not None
    assert (ending.state, ending.reason, ending.fault) == ("incomplete", "the broker is gone", "lost")
    assert simulated.ended() == dict.fromkeys((*RECEIVERS, *SENDERS), "lost")
    assert [name for name, _, _ in ending.phases][:2] == ["warmup", "measure"]
    assert ending.phases[1][2] <= simulated.now_ns


def test_without_a_control_broker_nothing_starts() -> None:
    simulated = SimulatedRun(plan(2, 2))
    simulated.feed(ControlLost("the broker is gone", simulated.now_ns))
    assert simulated.ending is not None
    assert (simulated.ending.fault, simulated.ending.t0_ns) == ("lost", None)


def test_the_phases_follow_the_plan_and_end_with_the_run() -> None:
    simulated = SimulatedRun(plan())
    simulated.join_all()
    simulated.advance(60)
    ending = simulated.ending
    assert ending is not None
    t0_ns = ending.t0_ns
    assert t0_ns == simulated.requested("START_SENDER")[0] + 300 * MS
    (warmup, measure, drain) = ending.phases
    assert warmup == ("warmup", t0_ns, t0_ns + SECOND)
    assert measure == ("measure", t0_ns + SECOND, t0_ns + 3 * SECOND)
    assert drain[:2] == ("drain", t0_ns + 3 * SECOND)
    assert drain[2] >= simulated.requested("STOP_RECEIVER")[0]


def test_without_warmup_there_is_no_warmup_phase() -> None:
    simulated = SimulatedRun(plan(warmup_ns=0))
    simulated.join_all()
    simulated.advance(60)
    assert simulated.ending is not None
    assert [name for name, _, _ in simulated.ending.phases] == ["measure", "drain"]


def test_a_count_ends_its_measure_phase_after_the_last_message() -> None:
    simulated = SimulatedRun(plan(measure_ns=None))
    simulated.join_all()
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.t0_ns is not None
    measure = next(phase for phase in simulated.ending.phases if phase[0] == "measure")
    assert measure[2] == simulated.ending.t0_ns + 3 * SECOND + 1  # the simulated last_sent_ns, plus one


def test_no_peer_starts_until_every_peer_is_ready() -> None:
    simulated = SimulatedRun(plan(2, 2))
    simulated.ignored.add(("sender-1", Command.SET))
    simulated.join_all()
    simulated.advance(15)
    assert not simulated.requested("START_RECEIVER")
    assert not simulated.requested("START_SENDER")


def test_senders_are_prepared_only_after_every_receiver_is_attached() -> None:
    simulated = SimulatedRun(plan(2, 2))
    simulated.ignored.add(("receiver-1", Command.SET))
    simulated.join_all()
    simulated.advance(15)
    assert simulated.requested("SET", "receiver-1")
    assert not simulated.requested("SET", "sender-0")


@pytest.mark.parametrize("fault", ["config", "peer", "lost"])
@pytest.mark.parametrize("peer", ["receiver-0", "sender-1"])
def test_a_refusal_before_the_barrier_ends_the_run_at_once_with_its_reason(peer: str, fault: str) -> None:
    simulated = SimulatedRun(plan(2, 2))
    simulated.refusals[peer, Command.SET] = Failure("amqp://x: connection refused", fault)  # type: ignore[arg-type]
    simulated.join_all()
    simulated.advance(1)
    ending = simulated.ending
    assert ending is not None
    assert (ending.state, ending.stage, ending.fault) == ("refused", "before barrier", fault)
    assert ending.reason == "amqp://x: connection refused"
    assert (ending.t0_ns, ending.phases) == (None, ())
    assert len(simulated.requested("HALT")) == 4
    assert simulated.ended()[peer] == "failed"


def test_a_peer_that_never_joins_is_named() -> None:
    simulated = SimulatedRun(plan(2, 2))
    for peer in RECEIVERS:
        simulated.feed(PeerJoined(peer, Identity(peer, "receiver", "h", 1), Hello(0, "1"), START))
    simulated.advance(30)
    ending = simulated.ending
    assert ending is not None
    assert (ending.state, ending.fault) == ("refused", "lost")
    assert ending.reason == "sender-0, sender-1 did not join within 20 s"


def test_a_peer_that_connects_slowly_may_exceed_its_lease() -> None:
    simulated = SimulatedRun(plan())
    simulated.ignored.add(("sender-0", Command.SET))
    simulated.silent.add("sender-0")
    simulated.join_all()
    simulated.advance(15)
    assert simulated.ending is None
    simulated.advance(10)
    assert simulated.ending is not None
    assert (simulated.ending.state, simulated.ending.fault) == ("refused", "peer")
    assert simulated.ending.reason == "sender-0 did not get ready within 20 s"


def test_a_peer_lost_before_the_barrier_is_not_a_configuration_error() -> None:
    simulated = SimulatedRun(plan())
    simulated.ignored.add(("sender-0", Command.SET))
    simulated.join_all()
    simulated.advance(1)
    simulated.kill("sender-0")
    assert simulated.ending is not None
    assert (simulated.ending.state, simulated.ending.fault) == ("refused", "lost")
    assert simulated.ending.reason.startswith("lost sender-0: ")


@pytest.mark.parametrize("will", [True, False])
@pytest.mark.parametrize("peer", ["sender-0", "receiver-1"])
def test_losing_a_peer_after_the_barrier_is_incomplete_and_names_it(peer: str, will: bool) -> None:
    simulated = started(measure_ns=60 * SECOND)
    lost_ns = simulated.now_ns
    simulated.kill(peer, will=will)
    simulated.advance(60)
    ending = simulated.ending
    assert ending is not None
    assert (ending.state, ending.fault) == ("incomplete", "lost")
    assert ending.reason.startswith(f"lost {peer}: ")
    assert simulated.now_ns - lost_ns <= (3 if will else 10) * SECOND
    assert simulated.ended()[peer] == "lost"
    assert simulated.ended()["sender-1"] == "stopped"
    assert simulated.requested("STOP_SENDER", "sender-1")[0] <= simulated.requested("DRAIN")[0]
    # The measure phase ends when sending was cut short, not when the plan would have ended it.
    assert next(phase for phase in ending.phases if phase[0] == "measure")[2] <= simulated.requested("STOP_SENDER")[0]


def test_after_a_loss_the_drain_lasts_half_a_second_at_most() -> None:
    simulated = SimulatedRun(plan(2, 2, measure_ns=60 * SECOND, drain_ns=30 * SECOND), share=0.5)
    simulated.join_all()
    simulated.advance(3)
    simulated.kill("sender-0")
    lost_ns = simulated.now_ns
    simulated.advance(60)
    assert simulated.requested("STOP_RECEIVER")[0] - lost_ns == SECOND // 2


def test_a_loss_is_not_forgotten_when_everything_else_succeeds() -> None:
    simulated = started()
    simulated.kill("receiver-0")
    simulated.feed(
        PeerJoined("receiver-0", Identity("receiver-0", "receiver", "h", 99), Hello(0, "1"), simulated.now_ns)
    )  # it came back
    simulated.feed(PeerReported("receiver-0", simulated.statistics("receiver-0"), simulated.now_ns))
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "incomplete"
    assert simulated.ended()["receiver-0"] == "lost"


def test_a_sender_that_dies_after_finishing_may_have_lost_its_last_rows() -> None:
    simulated = started(drain_ns=20 * SECOND)
    simulated.advance(60, until="DRAIN")
    simulated.kill("sender-1")
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "incomplete"


def test_a_peer_whose_recording_is_closed_may_exit() -> None:
    simulated = started()
    simulated.ignored.add(("receiver-0", Command.STOP_RECEIVER))
    simulated.advance(60, until="STOP_RECEIVER")
    simulated.advance(0.2)
    assert ("sender-0", Command.STOP_SENDER) in simulated.accepted
    simulated.feed(PeerLost("sender-0", "gone", simulated.now_ns))
    assert simulated.events("lost") == []
    simulated.advance(10)
    assert simulated.ended()["sender-0"] == "finished"


def test_a_peer_that_does_not_stop_is_lost_and_the_run_incomplete() -> None:
    simulated = started()
    simulated.ignored.add(("receiver-1", Command.STOP_RECEIVER))
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "incomplete"
    assert simulated.ending.reason == "lost receiver-1: did not stop within 8 s"


def test_a_peer_that_the_system_dropped_is_a_result_not_a_loss() -> None:
    simulated = started()
    simulated.fail("sender-0", "peer")
    simulated.feed(PeerLost("sender-0", "its process ended", simulated.now_ns))
    simulated.advance(60)
    ending = simulated.ending
    assert ending is not None
    assert (ending.state, ending.fault) == ("sealed", None)
    assert simulated.ended() == {
        "receiver-0": "finished", "receiver-1": "finished", "sender-0": "failed", "sender-1": "finished",
    }  # fmt: skip
    assert ending.peers[2].reason == "the system closed the connection"
    assert [event.detail["peer"] for event in simulated.events("failed")] == ["sender-0"]


def test_a_peer_that_no_longer_knows_what_it_did_counts_as_lost() -> None:
    simulated = started()
    simulated.fail("receiver-0", "lost")
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "incomplete"
    assert simulated.ending.reason == "lost receiver-0: the system closed the connection"


def test_when_every_receiver_failed_the_drain_ends_at_once() -> None:
    simulated = started(drain_ns=30 * SECOND)
    for peer in RECEIVERS:
        simulated.fail(peer, "peer")
    simulated.advance(60)
    assert simulated.requested("STOP_SENDER")[0] - simulated.events("draining")[0].t_ns < SECOND


@pytest.mark.parametrize("answers", [True, False])
def test_an_interrupted_run_ends_within_the_stop_timeout(answers: bool) -> None:
    simulated = started(measure_ns=60 * SECOND)
    if not answers:
        simulated.ignored.add(("sender-0", Command.STOP_SENDER))
    simulated.interrupt()
    interrupted_ns = simulated.now_ns
    assert len(simulated.requested("STOP_SENDER")) == len(simulated.requested("STOP_RECEIVER")) == 2
    simulated.advance(60)
    ending = simulated.ending
    assert ending is not None
    assert (ending.state, ending.reason) == ("interrupted", "interrupted")
    assert simulated.now_ns - interrupted_ns <= (0.2 if answers else 8.2) * SECOND
    assert simulated.ended()["receiver-0"] == "stopped"
    assert simulated.ended()["sender-0"] == ("stopped" if answers else "lost")
    assert next(phase for phase in ending.phases if phase[0] == "measure")[2] == interrupted_ns


@pytest.mark.parametrize(("seconds", "moment"), [(0.8, "0.5 s into warmup"), (2.3, "1.0 s into measure")])
def test_a_run_ends_with_its_system_and_says_when(seconds: float, moment: str) -> None:
    simulated = SimulatedRun(plan())
    simulated.join_all()
    simulated.advance(10, until="START_SENDER")
    simulated.advance(seconds)
    simulated.end_system("relay ended by signal 9")
    ended_ns = simulated.now_ns
    simulated.advance(60)
    assert simulated.ending is not None
    assert (simulated.ending.state, simulated.ending.reason) == ("incomplete", f"relay ended by signal 9, {moment}")
    assert simulated.now_ns - ended_ns <= 0.2 * SECOND, "nothing more can arrive, so there is nothing to wait for"


def test_a_system_that_ends_before_the_barrier_is_a_refusal() -> None:
    simulated = SimulatedRun(plan())
    simulated.end_system("relay ended with exit code 1")
    assert simulated.ending is not None
    assert (simulated.ending.state, simulated.ending.fault) == ("refused", "peer")
    assert simulated.ending.reason == "relay ended with exit code 1 before the first message"


def test_a_run_with_failover_outlives_its_system() -> None:
    simulated = SimulatedRun(plan(outlives_system=True))
    simulated.join_all()
    simulated.advance(2)
    simulated.end_system("relay ended by signal 9")
    simulated.advance(20)
    assert simulated.ending is not None
    assert simulated.ending.state == "sealed"
    assert len(simulated.events("system ended")) == 1


def test_an_interruption_before_the_barrier_leaves_no_phases() -> None:
    simulated = SimulatedRun(plan())
    simulated.interrupt()
    assert simulated.ending is not None
    assert (simulated.ending.state, simulated.ending.stage) == ("interrupted", "before barrier")
    assert (simulated.ending.t0_ns, simulated.ending.phases) == (None, ())
    assert len(simulated.requested("HALT")) == 2


def test_an_interruption_between_barrier_and_start_gives_no_backward_phase() -> None:
    simulated = SimulatedRun(plan())
    simulated.join_all()
    simulated.advance(10, until="START_SENDER")
    simulated.interrupt()
    simulated.advance(10)
    assert simulated.ending is not None
    assert all(start_ns <= end_ns for _, start_ns, end_ns in simulated.ending.phases)
    assert "warmup" not in [name for name, _, _ in simulated.ending.phases]


def test_the_drain_waits_for_what_is_owed_and_a_grace_for_duplicates() -> None:
    simulated = started(drain_ns=30 * SECOND)
    simulated.advance(60)
    drained_ns = simulated.requested("STOP_RECEIVER")[0] - simulated.requested("DRAIN")[0]
    assert 300 * MS <= drained_ns <= 700 * MS


@pytest.mark.parametrize("fan_out", [1, 3])
def test_the_drain_ends_in_time_when_messages_are_missing(fan_out: int) -> None:
    simulated = SimulatedRun(plan(fan_out={ADDRESS: fan_out}), share=0.5)
    simulated.join_all()
    simulated.advance(60)
    assert simulated.requested("STOP_RECEIVER")[0] - simulated.requested("DRAIN")[0] == 5 * SECOND
    assert simulated.ending is not None
    assert simulated.ending.state == "sealed"  # the recording is complete; the ledger will report the missing messages


@pytest.mark.parametrize(("arrives_s", "drained_s"), [(0, 5), (3, 5), (7, 8), (60, 20)])
def test_the_drain_goes_on_while_messages_arrive_up_to_its_limit(arrives_s: int, drained_s: int) -> None:
    simulated = SimulatedRun(plan(drain_limit_ns=20 * SECOND), share=0.5)
    simulated.join_all()
    simulated.advance(60, until="DRAIN")
    began_ns = simulated.now_ns
    while simulated.ending is None:
        if simulated.now_ns - began_ns < arrives_s * SECOND:
            simulated.more += 1
        simulated.advance(0.1)
    drained_ns = simulated.requested("STOP_RECEIVER")[0] - simulated.requested("DRAIN")[0]
    assert abs(drained_ns - drained_s * SECOND) <= 300 * MS


@pytest.mark.parametrize(("broken_s", "drained_s"), [(0, 5), (3, 8), (12, 17), (60, 20)])
def test_the_drain_has_its_whole_length_after_a_fault_up_to_its_limit(broken_s: int, drained_s: int) -> None:
    """Otherwise what a broker keeps while it starts again would count as lost."""
    simulated = SimulatedRun(plan(drain_limit_ns=20 * SECOND), share=0.5)
    simulated.join_all()
    simulated.advance(60, until="DRAIN")
    began_ns = simulated.now_ns
    while simulated.ending is None:
        if simulated.now_ns - began_ns < broken_s * SECOND:
            simulated.feed(SystemBroken(simulated.now_ns))
        simulated.advance(0.1)
    drained_ns = simulated.requested("STOP_RECEIVER")[0] - simulated.requested("DRAIN")[0]
    assert abs(drained_ns - drained_s * SECOND) <= 300 * MS


def test_a_run_that_lost_a_peer_does_not_drain_longer_for_late_messages() -> None:
    simulated = SimulatedRun(plan(2, 2, drain_limit_ns=60 * SECOND), share=0.5)
    simulated.join_all()
    simulated.advance(60, until="DRAIN")
    simulated.kill("sender-0")
    simulated.kill("receiver-1")
    for _ in range(50):
        simulated.more += 1
        simulated.advance(0.1)
    assert simulated.ending is not None


def test_a_topic_owes_each_subscription_every_message() -> None:
    once, twice = (SimulatedRun(plan(fan_out={ADDRESS: 2}), share=share) for share in (0.5, 1.0))
    for simulated in (once, twice):
        simulated.join_all()
        simulated.advance(60)
    assert once.requested("STOP_RECEIVER")[0] - once.requested("DRAIN")[0] == 5 * SECOND
    assert twice.requested("STOP_RECEIVER")[0] - twice.requested("DRAIN")[0] < SECOND


def test_senders_that_overrun_are_stopped_and_the_reason_is_kept() -> None:
    simulated = SimulatedRun(plan())
    simulated.endless.add("sender-0")
    simulated.join_all()
    simulated.advance(60)
    ending = simulated.ending
    assert ending is not None
    assert ending.t0_ns is not None
    assert 8 * SECOND < simulated.requested("STOP_SENDER")[0] - ending.t0_ns <= 8.2 * SECOND
    assert (ending.state, ending.reason) == ("sealed", "senders had not finished 5 s after the measure phase")
    assert simulated.ended()["sender-0"] == "stopped"


def test_a_count_that_stalls_is_stopped() -> None:
    simulated = SimulatedRun(plan(measure_ns=None))
    simulated.endless.add("sender-0")
    simulated.join_all()
    simulated.advance(60)
    ending = simulated.ending
    assert ending is not None
    assert ending.t0_ns is not None
    # The simulated sender sends for three seconds and then stalls.
    assert 13 * SECOND < simulated.requested("STOP_SENDER")[0] - ending.t0_ns <= 13.3 * SECOND
    assert ending.reason == "no message was sent or received for 10 s"


def test_a_sender_that_ignores_stop_is_lost() -> None:
    simulated = SimulatedRun(plan())
    simulated.endless.add("sender-0")
    simulated.ignored.add(("sender-0", Command.STOP_SENDER))
    simulated.join_all()
    simulated.advance(60)
    assert simulated.ending is not None
    assert (simulated.ending.state, simulated.ended()["sender-0"]) == ("incomplete", "lost")


def test_heartbeats_processed_late_still_count_before_the_next_tick() -> None:
    """The conductor's own process was suspended for a minute: notes that arrived meanwhile are processed first."""
    simulated = started(measure_ns=600 * SECOND)
    simulated.now_ns += 60 * SECOND
    for peer in (*RECEIVERS, *SENDERS):
        simulated.feed(PeerReported(peer, simulated.statistics(peer), simulated.now_ns))
    simulated.advance(1)
    assert simulated.events("lost") == []


def test_unknown_peers_and_old_answers_change_nothing() -> None:
    simulated = started()
    before = simulated.run
    stranger = Identity("sender-7", "sender", "h", 1)
    for event in (
        PeerJoined("sender-7", stranger, Hello(0, "1"), simulated.now_ns),
        PeerLost("sender-7", "gone", simulated.now_ns),
        PeerReported("sender-7", Statistics(simulated.now_ns), simulated.now_ns),
        PeerAnswered("sender-0", 1, Command.PROTOCOL_ERROR, False, Failure("old", "peer"), None, simulated.now_ns),
        PeerJoined("sender-0", Identity("sender-0", "sender", "elsewhere", 5), Hello(0, "1"), simulated.now_ns),
    ):
        assert step(before, event) == (before, ())


def test_a_duplicate_of_an_old_answer_does_not_answer_the_open_request() -> None:
    simulated = started()
    simulated.ignored.add(("receiver-1", Command.STOP_RECEIVER))
    old = next(
        command.correlation
        for _, command in simulated.commands
        if isinstance(command, SendRequest) and (command.peer, command.command.name) == ("receiver-1", "START_RECEIVER")
    )
    simulated.advance(60, until="STOP_RECEIVER")
    simulated.feed(PeerAnswered("receiver-1", old, Command.OK, True, None, None, simulated.now_ns))
    simulated.advance(60)
    assert simulated.ended()["receiver-1"] == "lost"


def test_statistics_out_of_order_do_not_lower_the_count() -> None:
    simulated = started()
    newest = simulated.statistics("sender-0")
    simulated.feed(PeerReported("sender-0", newest, simulated.now_ns))
    simulated.feed(PeerReported("sender-0", Statistics(newest.t_ns - SECOND, {ADDRESS: 1}, 1), simulated.now_ns))
    simulated.interrupt()
    simulated.ignored.add(("sender-0", Command.STOP_SENDER))
    assert simulated.run.peers["sender-0"].statistics == newest


DELIVERIES = st.lists(st.sampled_from([DELIVER, DELIVER, DELIVER, DROP, TWICE, LATE]), max_size=80)
KILLS = st.dictionaries(
    st.sampled_from((*RECEIVERS, *SENDERS)), st.tuples(st.integers(0, 90), st.booleans()), max_size=2
)


@settings(max_examples=80, deadline=None)
@given(deliveries=DELIVERIES, kills=KILLS, interrupt_at=st.none() | st.integers(0, 90), counted=st.booleans())
def test_whatever_the_network_does_the_run_ends_and_never_claims_too_much(
    deliveries: list[str], kills: dict[str, tuple[int, bool]], interrupt_at: int | None, counted: bool
) -> None:
    simulated = SimulatedRun(plan(2, 2, measure_ns=None if counted else 2 * SECOND), deliveries)
    simulated.join_all()
    for tick in range(1200):
        if simulated.ending is not None:
            break
        if interrupt_at == tick:
            simulated.interrupt()
        for peer, (at, will) in kills.items():
            if at == tick and simulated.ending is None:
                simulated.kill(peer, will=will)
        simulated.advance(0.1)
        if simulated.requested("START_SENDER"):
            assert {peer for peer, command in simulated.accepted if command is Command.SET} == set(simulated.roles)
    ending = simulated.ending
    assert ending is not None, "two minutes exceed all deadlines together"
    closed = {peer for peer, command in simulated.accepted if command in {Command.STOP_SENDER, Command.STOP_RECEIVER}}
    if simulated.dead.keys() - closed:
        assert ending.state != "sealed"
    if ending.state == "incomplete":
        assert any(peer.ended == "lost" and ending.reason.startswith(f"lost {peer.id}: ") for peer in ending.peers)
    if ending.state == "sealed":
        assert all(peer.ended != "lost" for peer in ending.peers)
    assert (ending.stage == "before barrier") == (not simulated.requested("START_SENDER"))
    assert all(start_ns <= end_ns for _, start_ns, end_ns in ending.phases)
    correlations = [command.correlation for _, command in simulated.commands if isinstance(command, SendRequest)]
    assert correlations == list(range(1, len(correlations) + 1))
    simulated.interrupt()  # late notes are ignored: feed() rejects commands after the end
    for peer in simulated.roles:
        simulated.feed(PeerLost(peer, "late", simulated.now_ns))


def test_the_same_events_give_the_same_commands() -> None:
    def commands() -> list[object]:
        simulated = SimulatedRun(plan(2, 2))
        simulated.join_all()
        simulated.advance(60)
        return list(simulated.commands)

    assert commands() == commands()


def test_inspectors_are_ready_before_senders_connect_and_watch_until_everything_arrived() -> None:
    simulated = SimulatedRun(plan(inspectors=2))
    simulated.join_all()
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "sealed"
    assert set(simulated.ended().values()) == {"finished"}
    (ready_ns,) = {t_ns for n in range(2) for t_ns in simulated.requested("SET", f"inspector-{n}")}
    assert simulated.requested("SET", "sender-0") > [ready_ns]
    assert len(simulated.requested("START_INSPECTOR")) == 2
    assert simulated.requested("STOP_INSPECTOR") >= simulated.requested("STOP_RECEIVER")


def test_a_lost_inspector_makes_the_run_incomplete_and_the_others_finish() -> None:
    simulated = SimulatedRun(plan(inspectors=1))
    simulated.join_all()
    simulated.advance(10, until="START_SENDER")
    simulated.advance(2)
    simulated.kill("inspector-0")
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "incomplete"
    assert simulated.ending.reason == "lost inspector-0: its control connection broke"
    assert simulated.ended() == {"receiver-0": "stopped", "sender-0": "finished", "inspector-0": "lost"}
    assert not simulated.events("overrun")
    (_, _, drain) = simulated.ending.phases
    assert drain[1] - simulated.ending.phases[0][1] == 3 * SECOND, "nothing was cut short"
    (event,) = simulated.events("lost")
    assert event.detail["peer"] == "inspector-0"


def test_a_silent_inspector_is_lost_with_its_lease_and_the_run_continues() -> None:
    simulated = SimulatedRun(plan(inspectors=1, measure_ns=20 * SECOND))
    simulated.join_all()
    simulated.advance(10, until="START_SENDER")
    simulated.silent.add("inspector-0")
    simulated.dead["inspector-0"] = simulated.now_ns
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "incomplete"
    assert simulated.ended()["inspector-0"] == "lost"
    assert simulated.ended()["sender-0"] == "finished"


def test_a_system_that_cannot_be_inspected_is_reported_before_anything_is_sent() -> None:
    simulated = SimulatedRun(plan(inspectors=1))
    simulated.refusals["inspector-0", Command.SET] = Failure("inspector-0: 401 Unauthorized", "peer")
    simulated.join_all()
    simulated.advance(60)
    assert simulated.ending is not None
    assert (simulated.ending.state, simulated.ending.stage) == ("refused", "before barrier")
    assert simulated.ending.reason == "inspector-0: 401 Unauthorized"
    assert not simulated.requested("START_SENDER")


def test_a_latency_beyond_its_limit_ends_the_whole_run_at_once() -> None:
    simulated = SimulatedRun(plan(2, 2, measure_ns=60 * SECOND, stop_when={"response_p90": 200 * MS}))
    simulated.join_all()
    simulated.last_second = {"second_response_p90_ns": 200.0 * MS}
    simulated.advance(5)
    assert not simulated.events("limit exceeded"), "a value at the limit does not exceed it"
    simulated.last_second = {"second_response_p90_ns": 201.0 * MS}
    simulated.advance(30)
    (event,) = simulated.events("limit exceeded")
    assert event.detail["value_ns"] == 201 * MS
    assert simulated.requested("STOP_SENDER") == [event.t_ns, event.t_ns]
    assert len(simulated.requested("STOP_RECEIVER")) == 2
    assert max(simulated.requested("STOP_RECEIVER")) - event.t_ns <= SECOND
    ending = simulated.ending
    assert ending is not None
    assert [event.detail for event in simulated.events("stopping")] == [{"everything_arrived": True}]
    assert (ending.state, ending.exceeded and ending.exceeded.metric) == ("sealed", "response_p90")


def test_a_limit_on_a_slice_looks_at_that_slice_alone() -> None:
    simulated = SimulatedRun(plan(2, 2, measure_ns=60 * SECOND, stop_when={"orders.response_p90": 200 * MS}))
    simulated.join_all()
    simulated.last_second = {"second_response_p90_ns": 900.0 * MS}
    simulated.last_second_of = {
        "orders": {"second_response_p90_ns": 200.0 * MS, "second_response_max_ns": 900.0 * MS},
        "queue://orders": {"second_response_p90_ns": 900.0 * MS},
    }
    simulated.advance(5)
    assert not simulated.events("limit exceeded")
    simulated.last_second_of = {"orders": {"second_response_p90_ns": 201.0 * MS}}
    simulated.advance(30)
    (event,) = simulated.events("limit exceeded")
    assert (event.detail["metric"], event.detail["value_ns"]) == ("orders.response_p90", 201 * MS)


def test_after_a_limit_is_exceeded_messages_in_flight_have_the_drain_to_arrive() -> None:
    simulated = SimulatedRun(
        plan(measure_ns=60 * SECOND, drain_ns=5 * SECOND, stop_when={"response_max": SECOND}), share=0.5
    )
    simulated.join_all()
    simulated.last_second = {"second_response_max_ns": 2.0 * SECOND}
    simulated.advance(30)
    (event,) = simulated.events("limit exceeded")
    assert min(simulated.requested("STOP_RECEIVER")) - event.t_ns >= 5 * SECOND
    assert simulated.ending is not None
    name, start_ns, end_ns = simulated.ending.phases[1]
    assert (name, end_ns) == ("measure", event.t_ns)
    assert start_ns < end_ns


def test_a_limit_exceeded_in_the_warmup_does_not_stop_the_run() -> None:
    simulated = SimulatedRun(plan(warmup_ns=20 * SECOND, stop_when={"response_max": MS}))
    simulated.join_all()
    simulated.last_second = {"second_response_max_ns": 5.0 * SECOND}
    simulated.advance(15)
    assert not simulated.events("limit exceeded")
    simulated.last_second = {}
    simulated.advance(30)
    assert simulated.ending is not None
    assert simulated.ending.exceeded is None
