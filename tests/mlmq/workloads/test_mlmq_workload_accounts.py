"""Do the books of the workloads find what is wrong, and only that? Without a broker: the messages are made up here."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.mlmq.client import Exchange
from crescendo.mlmq.workloads.account import ConservationAccount, ConservationFindings, ReceivedTokens
from crescendo.mlmq.workloads.counters import PairCounter, RelayCounter
from crescendo.mlmq.workloads.message_content import MessageContent, pack, unpack
from crescendo.mlmq.workloads.recording import judged
from crescendo.wire.mlmq.codec import Times

TAG = 0xFEED


@given(
    st.integers(0, 32_767), st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**63), st.integers(48, 2000)
)
def test_what_was_packed_is_read_and_what_was_changed_is_not(
    sender: int, seq: int, sent_ns: int, number: int, size: int
) -> None:
    parcel = MessageContent(sender, seq, sent_ns, number // 2, number)
    content = pack(parcel, TAG, size)
    assert len(content) == size
    assert unpack(content, TAG, size) == parcel
    assert unpack(content, TAG + 1, size) is None  # of another run
    assert unpack(content[:47], TAG, size) is None
    at = seq % (size - 2)
    if at not in range(2, 48):  # numbers may be other numbers; everything else must be as it was
        assert unpack(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :], TAG, size) is None


@given(st.lists(st.integers(0, 40), max_size=80))
def test_a_number_is_new_exactly_once(numbers: list[int]) -> None:
    arrivals, seen = ReceivedTokens(), set[int]()
    for number in numbers:
        assert arrivals.take(number) == (number not in seen)
        seen.add(number)


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_exactly_what_was_lost_doubled_or_left_open_is_found(
    seed: int, messages: int, lost: int, doubled: int, unanswered: int
) -> None:
    """Messages leave, are stored and arrive in any order that is possible; some do not, and that is counted here."""
    chance = Random(seed)
    findings = ConservationFindings()
    account = ConservationAccount(findings)
    names = [(number % 3, number // 3) for number in range(messages)]
    fates = {name: "plain" for name in names}
    chosen = chance.sample(names, min(lost + doubled + unanswered, messages))
    for name, fate in zip(chosen, ["lost"] * lost + ["doubled"] * doubled + ["unanswered"] * unanswered, strict=False):
        fates[name] = fate
    steps = []
    for name in names:
        account.sending(name, f"queue {name[0]}")
        if fates[name] != "unanswered":
            steps.append((name, "stored"))
        arrivals = {"plain": 1, "lost": 0, "doubled": 2, "unanswered": 0}[fates[name]]
        steps += [(name, "received")] * arrivals
    chance.shuffle(steps)
    for now_ns, (name, step) in enumerate(steps, 1):
        if step == "stored":
            account.stored(name, now_ns)
        else:
            account.received(name, f"queue {name[0]}", redelivered=False)
    for place in range(3):
        account.empty(f"queue {place}", len(steps) + 1)
    account.close()
    count = list(fates.values()).count
    assert findings.violations == count("lost") + count("doubled")
    assert findings.unresolved == count("unanswered")
    assert account.under_way == 0


def test_a_stored_message_is_lost_only_when_somebody_looked_after_it() -> None:
    for looked_ns, expected in ((4, (0, 1)), (6, (1, 0))):
        findings = ConservationFindings()
        account = ConservationAccount(findings)
        account.sending((1, 0), "q")
        account.stored((1, 0), 5)
        account.empty("q", looked_ns)
        account.close()
        assert (findings.violations, findings.unresolved) == expected


def test_a_message_that_says_it_comes_again_is_no_violation() -> None:
    findings = ConservationFindings()
    account = ConservationAccount(findings)
    for redelivered, new in ((False, True), (True, False)):
        assert account.received((1, 0), "q", redelivered) is new
    assert findings.violations == 0


def test_a_token_counts_its_hops_and_copies_are_found() -> None:
    findings = ConservationFindings()
    relay = RelayCounter("relay", findings)
    for hop in range(1, 6):
        assert relay.leaves(3) == hop
        assert relay.away == 1
        assert relay.arrives(3, hop)
    assert relay.away == 0
    assert findings.violations == 0
    assert not relay.arrives(3, 5)  # it is here already
    assert relay.leaves(3) == 6
    assert not relay.arrives(3, 5)  # an old one
    assert not relay.arrives(4, 1)  # nobody's
    assert findings.violations == 3
    relay.stays(3)  # it was shed
    assert relay.leaves(3) == 6
    assert relay.arrives(3, 6)


def test_each_request_gets_its_own_answer() -> None:
    findings = ConservationFindings()
    pair = PairCounter("pairs/0", findings)
    for number in (1, 2):
        assert pair.asks() == number
        assert pair.is_next(0, number, 0)
        assert pair.is_own(0, number, 0)
    assert findings.violations == 0
    assert pair.asks() == 3
    assert not pair.is_next(0, 2, 0)  # again
    assert not pair.is_next(0, 4, 0)  # one is missing
    assert not pair.is_own(0, 2, 0)  # somebody else's answer
    assert not pair.is_own(1, 3, 0)
    assert findings.violations == 4


@pytest.mark.parametrize(
    ("outcome", "took_ns", "waited_ns", "expected"),
    [
        ("ok", 100, 0, "ok"),
        ("ok", 101, 0, "timeout"),
        ("ok", 900, 800, "ok"),  # it asked to wait
        ("empty", 900, 800, "empty"),
        ("empty", 900, 100, "timeout"),
        ("overloaded", 5, 0, "overloaded"),
        ("unanswered", 5, 0, "timeout"),
        ("no_such_queue", 5, 0, "error"),
    ],
)
def test_a_request_is_judged_by_its_answer_and_its_time(
    outcome: str, took_ns: int, waited_ns: int, expected: str
) -> None:
    exchange = Exchange("Dequeue", outcome, 1000, 1000 + took_ns, 1, Times(0, 0, 0, 0, 0, waited_ns))
    assert judged(exchange, 100) == (expected, took_ns - waited_ns)
