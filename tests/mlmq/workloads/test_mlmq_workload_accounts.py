"""Do the accounts of the workloads find every fault, and only faults? No broker: the messages are simulated."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.mlmq.client import Exchange
from crescendo.mlmq.workloads.account import ConservationAccount, ConservationFindings, ReceivedSeqs
from crescendo.mlmq.workloads.counters import PairCounter, RelayCounter
from crescendo.mlmq.workloads.message_content import MessageContent, pack, unpack
from crescendo.mlmq.workloads.recording import classify
from crescendo.wire.mlmq.codec import Times

TAG = 0xFEED


@given(
    st.integers(0, 32_767), st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**63), st.integers(48, 2000)
)
def test_packed_content_is_read_and_altered_content_is_not(
    sender: int, seq: int, sent_ns: int, number: int, size: int
) -> None:
    content = MessageContent(sender, seq, sent_ns, number // 2, number)
    payload = pack(content, TAG, size)
    assert len(payload) == size
    assert unpack(payload, TAG, size) == content
    assert unpack(payload, TAG + 1, size) is None  # of another run
    assert unpack(payload[:47], TAG, size) is None
    at = seq % (size - 2)
    if at not in range(2, 48):  # counters may hold any value; everything else is verified
        assert unpack(payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :], TAG, size) is None


@given(st.lists(st.integers(0, 40), max_size=80))
def test_a_number_is_new_exactly_once(numbers: list[int]) -> None:
    arrivals, seen = ReceivedSeqs(), set[int]()
    for number in numbers:
        assert arrivals.take(number) == (number not in seen)
        seen.add(number)


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_exactly_the_lost_duplicated_and_unanswered_messages_are_found(
    seed: int, messages: int, lost: int, duplicated: int, unanswered: int
) -> None:
    """Messages are sent, stored and received in any possible order; the faults are counted here."""
    rng = Random(seed)
    findings = ConservationFindings()
    account = ConservationAccount(findings)
    names = [(number % 3, number // 3) for number in range(messages)]
    outcomes = {name: "plain" for name in names}
    chosen = rng.sample(names, min(lost + duplicated + unanswered, messages))
    for name, outcome in zip(
        chosen, ["lost"] * lost + ["duplicated"] * duplicated + ["unanswered"] * unanswered, strict=False
    ):
        outcomes[name] = outcome
    steps = []
    for name in names:
        account.sending(name, f"queue {name[0]}")
        if outcomes[name] != "unanswered":
            steps.append((name, "stored"))
        arrivals = {"plain": 1, "lost": 0, "duplicated": 2, "unanswered": 0}[outcomes[name]]
        steps += [(name, "received")] * arrivals
    rng.shuffle(steps)
    for now_ns, (name, step) in enumerate(steps, 1):
        if step == "stored":
            account.stored(name, now_ns)
        else:
            account.received(name, f"queue {name[0]}", redelivered=False)
    for queue in range(3):
        account.empty(f"queue {queue}", len(steps) + 1)
    account.close()
    count = list(outcomes.values()).count
    assert findings.violations == count("lost") + count("duplicated")
    assert findings.unresolved == count("unanswered")
    assert account.in_flight == 0


def test_a_stored_message_is_lost_only_if_its_queue_was_seen_empty_later() -> None:
    for inspected_ns, expected in ((4, (0, 1)), (6, (1, 0))):
        findings = ConservationFindings()
        account = ConservationAccount(findings)
        account.sending((1, 0), "q")
        account.stored((1, 0), 5)
        account.empty("q", inspected_ns)
        account.close()
        assert (findings.violations, findings.unresolved) == expected


def test_a_redelivered_message_is_not_a_violation() -> None:
    findings = ConservationFindings()
    account = ConservationAccount(findings)
    for redelivered, new in ((False, True), (True, False)):
        assert account.received((1, 0), "q", redelivered) is new
    assert findings.violations == 0


def test_a_token_counts_its_hops_and_copies_are_found() -> None:
    findings = ConservationFindings()
    relay = RelayCounter("relay", findings)
    for hop in range(1, 6):
        assert relay.next_hop(3) == hop
        assert relay.in_flight == 1
        assert relay.check_received(3, hop)
    assert relay.in_flight == 0
    assert findings.violations == 0
    assert not relay.check_received(3, 5)  # already received
    assert relay.next_hop(3) == 6
    assert not relay.check_received(3, 5)  # an old hop
    assert not relay.check_received(4, 1)  # never sent
    assert findings.violations == 3
    relay.undo_hop(3)  # it was shed
    assert relay.next_hop(3) == 6
    assert relay.check_received(3, 6)


def test_each_request_gets_its_own_answer() -> None:
    findings = ConservationFindings()
    pair = PairCounter("pairs/0", findings)
    for number in (1, 2):
        assert pair.next_request() == number
        assert pair.check_request(0, number, 0)
        assert pair.check_answer(0, number, 0)
    assert findings.violations == 0
    assert pair.next_request() == 3
    assert not pair.check_request(0, 2, 0)  # a duplicate
    assert not pair.check_request(0, 4, 0)  # one is missing
    assert not pair.check_answer(0, 2, 0)  # the answer to another request
    assert not pair.check_answer(1, 3, 0)
    assert findings.violations == 4


@pytest.mark.parametrize(
    ("outcome", "took_ns", "waited_ns", "expected"),
    [
        ("ok", 100, 0, "ok"),
        ("ok", 101, 0, "timeout"),
        ("ok", 900, 800, "ok"),  # the wait was requested
        ("empty", 900, 800, "empty"),
        ("empty", 900, 100, "timeout"),
        ("overloaded", 5, 0, "overloaded"),
        ("unanswered", 5, 0, "timeout"),
        ("no_such_queue", 5, 0, "error"),
    ],
)
def test_a_request_is_classified_by_its_answer_and_its_duration(
    outcome: str, took_ns: int, waited_ns: int, expected: str
) -> None:
    exchange = Exchange("Dequeue", outcome, 1000, 1000 + took_ns, 1, Times(0, 0, 0, 0, 0, waited_ns))
    assert classify(exchange, 100) == (expected, took_ns - waited_ns)
