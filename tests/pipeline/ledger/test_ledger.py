"""The ledger names exactly the messages that went wrong. The oracle below counts them one by one, with sets.

The recordings that are written by hand are analysed together, because that costs little more than one.
"""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from analyzed_together import Analysed, TinyRecordings
from crescendo.pipeline.job import analyze
from crescendo.record.schema import Flag
from crescendo.record.summary import Summary
from tiny_recordings import MEASURE_NS, MS, Tiny, silent

QUEUE = "queue://perf"
EDGE = 65_536  # messages around it lie in two blocks

Ranges = dict[str, set[tuple[str, int, int]]]  # kind -> (subscription, sender, seq)


def ranges_of(run_dir: Path) -> Ranges:
    """The table of ranges, expanded message by message."""
    found: Ranges = {}
    for row in pq.read_table(run_dir / "tables" / "ledger_ranges").to_pylist():
        for seq in range(row["first_seq"], row["last_seq"] + 1):
            entry = (row["subscription"], row["sender"], seq)
            assert entry not in found.setdefault(row["kind"], set()), "ranges overlap"
            found[row["kind"]].add(entry)
    return found


RECORDINGS = TinyRecordings()


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return RECORDINGS.analyze(spark, tmp_path_factory.mktemp("ledger"))


@RECORDINGS.add
def clean() -> Tiny:
    tiny = Tiny(group={"senders": 2, "rate": 5.0})
    tiny.carry(20)
    tiny.accept(0, 0, 19, MEASURE_NS, MEASURE_NS + MS)
    return tiny


def test_a_clean_run_owes_nothing(analysed: Analysed) -> None:
    summary = analysed.summaries["clean"]
    total = summary.total
    assert (total.sent, total.owed, total.settled, total.delivered) == (20, 20, 20, 20)
    assert total.lost == total.duplicated == total.reordered == total.unrecorded == total.corrupt == total.stray == 0
    assert ranges_of(analysed.folder / "clean") == {}
    # An idle sender still has its row.
    assert [(row.scope, row.sender, row.sent) for row in summary.ledger] == [
        ("total", None, 20), ("sender", 0, 20), ("sender", 1, 0), ("subscription", None, 20),
    ]  # fmt: skip


@RECORDINGS.add
def same_sums() -> Tiny:
    tiny = Tiny()
    for seq in range(6):
        tiny.send(0, seq, MEASURE_NS + seq * MS)
    for seq in (0, 0, 2, 3, 5, 5):
        tiny.deliver(0, 0, seq, MEASURE_NS + seq * MS, MEASURE_NS + 9 * MS)
    return tiny


def test_losing_1_and_4_while_duplicating_0_and_5_is_not_mistaken_for_complete(analysed: Analysed) -> None:
    total = analysed.summaries["same_sums"].total
    assert (total.delivered, total.lost_unacknowledged, total.duplicated) == (4, 2, 2)
    assert ranges_of(analysed.folder / "same_sums") == {
        "lost": {(QUEUE, 0, 1), (QUEUE, 0, 4)},
        "duplicated": {(QUEUE, 0, 0), (QUEUE, 0, 5)},
    }


@RECORDINGS.add
def lost_in_a_row() -> Tiny:
    tiny = Tiny()
    for seq in range(10):
        tiny.send(0, seq, MEASURE_NS + seq * MS)
    tiny.accept(0, 0, 5, MEASURE_NS, MEASURE_NS + MS)
    for seq in (0, 1, 9):
        tiny.deliver(0, 0, seq, MEASURE_NS + seq * MS, MEASURE_NS + 20 * MS)
    return tiny


def test_consecutive_losses_form_one_range_and_acknowledged_losses_a_separate_one(analysed: Analysed) -> None:
    total = analysed.summaries["lost_in_a_row"].total
    assert (total.lost_acknowledged, total.lost_unacknowledged) == (4, 3)
    rows = pq.read_table(analysed.folder / "lost_in_a_row" / "tables" / "ledger_ranges").to_pylist()
    assert sorted((row["first_seq"], row["last_seq"], row["acknowledged"], row["count"]) for row in rows) == [
        (2, 5, True, 4), (6, 8, False, 3),
    ]  # fmt: skip


@RECORDINGS.add
def topic() -> Tiny:
    tiny = Tiny(group={"address": "topic://news", "receivers": 2, "rate": 5.0})
    for seq in range(10):
        tiny.send(0, seq, MEASURE_NS + seq * MS)
        tiny.deliver(0, 0, seq, MEASURE_NS + seq * MS, MEASURE_NS + 20 * MS)
        if seq != 3:
            tiny.deliver(1, 0, seq, MEASURE_NS + seq * MS, MEASURE_NS + 20 * MS)
    return tiny


def test_each_subscription_of_a_topic_is_owed_every_message(analysed: Analysed) -> None:
    summary = analysed.summaries["topic"]
    assert (summary.total.sent, summary.total.owed, summary.total.delivered, summary.total.lost) == (10, 20, 19, 1)
    lost = {row.subscription: row.lost for row in summary.ledger if row.scope == "subscription"}
    assert lost == {"topic://news#main.0": 0, "topic://news#main.1": 1}
    # Two subscriptions received 19 messages in four seconds; divided by the fan-out, that is half.
    assert summary.rate.sustained == 19 / 4 / 2


@RECORDINGS.add
def resent() -> Tiny:
    tiny = Tiny()
    tiny.carry(5)
    tiny.send(0, 2, MEASURE_NS + 2 * MS, attempt=2)
    tiny.deliver(0, 0, 2, MEASURE_NS + 2 * MS, MEASURE_NS + 30 * MS)
    return tiny


def test_a_resent_message_counts_as_sent_once(analysed: Analysed) -> None:
    total = analysed.summaries["resent"].total
    assert (total.sent, total.delivered, total.duplicated) == (5, 5, 1)


@RECORDINGS.add
def corrupt_and_stray() -> Tiny:
    tiny = Tiny()
    tiny.carry(5)
    tiny.deliver(0, -1, -1, 0, MEASURE_NS, int(Flag.CORRUPT))
    for _ in range(2):
        tiny.deliver(0, 0, 3, 0, MEASURE_NS, int(Flag.STRAY))
    return tiny


def test_corrupt_and_stray_messages_are_counted_separately_and_belong_to_no_sender(analysed: Analysed) -> None:
    summary = analysed.summaries["corrupt_and_stray"]
    assert (summary.total.corrupt, summary.total.stray, summary.total.delivered) == (1, 2, 5)
    assert summary.total.duplicated == summary.total.unrecorded == 0
    assert summary.rate.sustained == 5 / 4


# Arbitrary recordings, against counting messages one by one.

GROUPS = 8
"""Groups in one recording, each with two senders and two receivers, and messages on both sides of a block's edge. A
Spark job costs the same for all of them as for one."""


def address_of(number: int, topic: bool) -> str:
    return f"topic://t{number}" if topic else f"queue://q{number}"


def add_group(draw: st.DrawFn, tiny: Tiny, number: int) -> None:
    """Send and deliver the messages of one group, which has its own senders, receivers and address."""
    topic = is_topic(tiny, number)
    senders, receivers = range(2 * number, 2 * number + 2), range(2 * number, 2 * number + 2)
    numbers = [(sender, seq) for sender in senders for seq in range(EDGE - 4, EDGE + 4)]
    for sender, seq in numbers:
        if draw(st.integers(0, 9)):  # otherwise as from a killed sender, whose last rows were never written
            tiny.send(sender, seq, MEASURE_NS + seq)
    for sender in senders:
        first = EDGE + draw(st.integers(-5, 3))
        if draw(st.booleans()):
            tiny.accept(sender, first, first + draw(st.integers(0, 5)), MEASURE_NS, MEASURE_NS + MS)
    deliveries = []
    for sender, seq in numbers:
        for receiver in receivers if topic else [draw(st.sampled_from(receivers))]:
            for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3]))):
                # On a queue a redelivery may go to the other receiver.
                other = sum(receivers) - receiver
                target = receiver if topic else draw(st.sampled_from([receiver, receiver, other]))
                deliveries.append((target, sender, seq))
    highest: dict[tuple[int, int], int] = {}
    for position, (receiver, sender, seq) in enumerate(draw(st.permutations(deliveries))):
        # Three messages per read, so they arrive in the same nanosecond; some before they were intended.
        received_ns = MEASURE_NS + EDGE - 6 + position // 3
        late = seq < highest.get((receiver, sender), -1)
        highest[receiver, sender] = max(seq, highest.get((receiver, sender), -1))
        tiny.deliver(receiver, sender, seq, MEASURE_NS + seq, received_ns, int(Flag.OUT_OF_ORDER) if late else 0)


@st.composite
def recordings(draw: st.DrawFn) -> Tiny:
    groups = [
        {
            "name": f"g{number}", "address": address_of(number, topic), "senders": 2, "receivers": 2, "rate": 5.0,
        }
        for number, topic in enumerate(draw(st.lists(st.booleans(), min_size=GROUPS, max_size=GROUPS)))
    ]  # fmt: skip
    tiny = Tiny(group=groups[0], more_groups=groups[1:])
    for number in range(GROUPS):
        add_group(draw, tiny, number)
    return tiny


def is_topic(tiny: Tiny, number: int) -> bool:
    return bool([tiny.group, *tiny.more_groups][number]["address"].startswith("topic"))


def expected_ledger(tiny: Tiny, number: int) -> tuple[Counter[str], Ranges]:
    """Totals and messages of a group by kind, with nothing but sets and loops."""
    topic, own = is_topic(tiny, number), (2 * number, 2 * number + 1)
    sent = {(row[0], row[1]) for row in tiny.sent if row[0] in own}
    accepted = {(row[0], seq) for row in tiny.settled if row[0] in own for seq in range(row[1], row[2] + 1)}
    address = address_of(number, topic)
    # The receivers of each subscription: on a topic one of them, on a queue both.
    subscriptions = {f"{address}#g{number}.{n}": (own[n],) for n in range(2)} if topic else {address: own}
    totals: Counter[str] = Counter(sent=len(sent), owed=len(sent) * len(subscriptions), settled=len(accepted))
    ranges: Ranges = {}
    for name, receivers in subscriptions.items():
        arrived = sorted(
            (row for row in tiny.received if row[0] in receivers), key=lambda row: (row[5], row[0], row[6])
        )
        seen: Counter[tuple[int, int]] = Counter()
        for row in arrived:
            message = (row[1], row[2])
            seen[message] += 1
            if seen[message] > 1:
                totals["duplicated"] += 1
                ranges.setdefault("duplicated", set()).add((name, *message))
            elif row[8] & Flag.OUT_OF_ORDER:
                totals["reordered"] += 1
                ranges.setdefault("reordered", set()).add((name, *message))
        for message in sent - seen.keys():
            totals["lost_acknowledged" if message in accepted else "lost_unacknowledged"] += 1
            ranges.setdefault("lost", set()).add((name, *message))
        for message in seen.keys() - sent:
            totals["unrecorded"] += 1
            ranges.setdefault("unrecorded", set()).add((name, *message))
        totals["delivered"] += len(sent & seen.keys())
    return totals, ranges


COUNTED = ("owed", "delivered", "lost_acknowledged", "lost_unacknowledged", "duplicated", "reordered", "unrecorded")


def added(summary: Summary, scope: str, field: str, senders: tuple[int, ...] | None = None) -> int:
    rows = [row for row in summary.ledger if row.scope == scope and (senders is None or row.sender in senders)]
    return sum(int(getattr(row, field)) for row in rows)


# Without shrinking, because every example is a Spark job. Two examples, because the first is always the simplest.
@pytest.mark.parametrize("narrowed", [False, True], ids=["whole blocks", "narrowed"])
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(tiny=recordings())
def test_every_message_of_any_recording_is_accounted_for(spark: SparkSession, narrowed: bool, tiny: Tiny) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        if narrowed:  # as for suspect blocks with many rows
            patch.setattr("crescendo.pipeline.job.MIN_ROWS", 0)
            patch.setattr("crescendo.pipeline.spark.evaluation.INTERPRETED_ROWS", 0)
        summary = analyze(tiny.write(Path(directory)), spark, silent)
        ranges = ranges_of(Path(directory))
    totals: Counter[str] = Counter()
    expected: Ranges = {}
    for number in range(GROUPS):
        group_totals, group_ranges = expected_ledger(tiny, number)
        totals.update(group_totals)
        for kind, entries in group_ranges.items():
            expected.setdefault(kind, set()).update(entries)
        for name in COUNTED:
            assert added(summary, "sender", name, (2 * number, 2 * number + 1)) == group_totals[name]
    actual: dict[str, Any] = {name: getattr(summary.total, name) for name in ("sent", "settled", *COUNTED)}
    assert actual == {name: totals[name] for name in actual}
    assert ranges == expected
    for name in COUNTED:
        assert added(summary, "sender", name) == added(summary, "subscription", name) == actual[name]
