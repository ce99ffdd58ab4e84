"""Which blocks of messages do not balance?

Compares the messages sent with those each subscription received, block by block. A block that agrees in count, sum and
hash is accounted for without joining its messages; one that does not is a suspect. There is one row per 65,536
messages, so this fits the driver. `discrepancies` finds out what is wrong in a suspect block.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.dataset as ds

from crescendo.pipeline.columns import (
    BLOCK,
    END_NS,
    FIRST_SEQ,
    HASH,
    LAST_SEQ,
    LOW_SUM,
    MESSAGES,
    SENDER,
    SIDE,
    SUBSCRIPTION,
)
from crescendo.pipeline.ledger.block_sums import COUNTS, EXTREMES, OUT_OF_ORDER, RECEIVED, SENT, SETTLED
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.per_run import UNKNOWN

Pair = tuple[int, int]  # subscription, sender
Suspect = tuple[int, int, int]  # subscription, sender, block
Checksums = tuple[int, int, int]  # messages, sum of their numbers, hash
_NOTHING: Checksums = (0, 0, 0)


@dataclass(frozen=True)
class Balance:
    """The totals of the block sums, and the blocks that differ."""

    sent: dict[int, Counter[str]]  # sender -> counts
    settled: dict[int, int]  # sender -> accepted messages
    received: dict[Pair, Counter[str]]  # corrupt and stray messages belong to no sender: their sender is UNKNOWN
    suspects: list[Suspect]
    suspect_rows: int  # about how many rows must be compared message by message
    out_of_order: int  # deliveries out of order, which are compared even in blocks that balance
    missing: int  # how many fewer messages arrived in suspect blocks than are owed
    measured: dict[int, tuple[int, int]]  # sender -> first and last number sent in the measure phase
    last_ns: int  # when the last message arrived
    shared: frozenset[int] = frozenset()  # subscriptions that together received each message once, instead of each

    def total_sent(self, count: str) -> int:
        return sum(counts[count] for counts in self.sent.values())

    def total_received(self, count: str) -> int:
        """The sum over the messages of this run in all subscriptions."""
        return sum(counts[count] for (_, sender), counts in self.received.items() if sender != UNKNOWN)

    def only(self, senders: Collection[int], subscriptions: Collection[int] | None = None) -> "Balance":
        """The totals of these senders alone, and of these subscriptions if any are given. Suspects are those of all."""
        return replace(
            self,
            sent={sender: counts for sender, counts in self.sent.items() if sender in senders},
            settled={sender: count for sender, count in self.settled.items() if sender in senders},
            received={
                (number, sender): counts
                for (number, sender), counts in self.received.items()
                if sender in senders and (subscriptions is None or number in subscriptions)
            },
            measured={sender: ends for sender, ends in self.measured.items() if sender in senders},
        )

    @property
    def unlisted(self) -> int:
        """Deliveries to receivers that the manifest does not list."""
        return sum(counts[MESSAGES] for (number, _), counts in self.received.items() if number == UNKNOWN)


def read_balance(files: list[Path], connections: Connections) -> Balance:
    """Read the block sums from these files, add them up and compare the sides."""
    sent: dict[int, Counter[str]] = defaultdict(Counter)
    received: dict[Pair, Counter[str]] = defaultdict(Counter)
    settled: dict[int, int] = {}
    owed: dict[Suspect, Checksums] = {}
    arrived: dict[Suspect, Checksums] = {}
    out_of_order, last_ns = 0, UNKNOWN
    measured: dict[int, tuple[int, int]] = {}
    columns = [SIDE, SUBSCRIPTION, SENDER, BLOCK, LOW_SUM, HASH, *COUNTS, *EXTREMES]
    for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(columns=columns):
        for row in batch.to_pylist():
            subscription, sender, block = row[SUBSCRIPTION], row[SENDER], row[BLOCK]
            counts = Counter({name: row[name] for name in COUNTS})
            checksums = (row[MESSAGES], row[LOW_SUM], row[HASH])
            if row[SIDE] == SENT:
                sent[sender].update(counts)
                if row[FIRST_SEQ] is not None:
                    first, last = measured.get(sender, (row[FIRST_SEQ], row[LAST_SEQ]))
                    measured[sender] = min(first, row[FIRST_SEQ]), max(last, row[LAST_SEQ])
                for number in connections.owed_by.get(sender, ()):
                    owed[number, sender, block] = checksums
            elif row[SIDE] == SETTLED:
                settled[sender] = row[MESSAGES]
            elif row[SIDE] == RECEIVED:
                received[subscription, sender].update(counts)
                last_ns = max(last_ns, row[END_NS] or UNKNOWN)
                # Deliveries to an unlisted receiver cannot be judged: what it is owed is unknown.
                if UNKNOWN not in {subscription, block}:
                    arrived[subscription, sender, block] = checksums
                    out_of_order += row[OUT_OF_ORDER]
    suspects = sorted(key for key in owed.keys() | arrived.keys() if owed.get(key) != arrived.get(key))
    # A suspect message may have a row for its send, one for its settlement and one per delivery.
    rows = out_of_order + sum(2 * owed.get(key, (0,))[0] + arrived.get(key, (0,))[0] for key in suspects)
    missing = sum(max(owed.get(key, (0,))[0] - arrived.get(key, (0,))[0], 0) for key in suspects)
    shared = _shared_instead_of_copied(owed, arrived, connections)
    return Balance(
        dict(sent), settled, dict(received), suspects, rows, out_of_order, missing, measured, last_ns, shared
    )


def _shared_instead_of_copied(
    owed: dict[Suspect, Checksums], arrived: dict[Suspect, Checksums], connections: Connections
) -> frozenset[int]:
    """The subscriptions that received disjoint shares of what each of them is owed.

    Proven block by block: the counts and sums of the shares add up to those of the messages sent, and so do the hashes,
    which are combined by exclusive or. More than half of the blocks must agree, because the last ones may be cut off.
    """
    shared: set[int] = set()
    for subscriptions in {numbers for numbers in connections.owed_by.values() if len(numbers) > 1}:
        senders = [sender for sender, numbers in connections.owed_by.items() if numbers == subscriptions]
        blocks = {(sender, block) for number, sender, block in owed if sender in senders and number == subscriptions[0]}
        agreed = [
            sum(_count(arrived, number, *key) > 0 for number in subscriptions) > 1
            and _together(arrived, subscriptions, *key) == owed[subscriptions[0], *key]
            for key in blocks
        ]
        if sum(agreed) > len(blocks) / 2:
            shared.update(subscriptions)
    return frozenset(shared)


def _count(sums: dict[Suspect, Checksums], subscription: int, sender: int, block: int) -> int:
    return sums.get((subscription, sender, block), _NOTHING)[0]


def _together(sums: dict[Suspect, Checksums], subscriptions: tuple[int, ...], sender: int, block: int) -> Checksums:
    """The checksums of a block, over these subscriptions."""
    count, low_sum, hashed = _NOTHING
    for number in subscriptions:
        messages, low, digest = sums.get((number, sender, block), _NOTHING)
        count, low_sum, hashed = count + messages, low_sum + low, hashed ^ digest
    return count, low_sum, hashed
