"""Which blocks of messages do not balance?

Compares the messages sent with those each subscription received, block by block. A block that agrees in count, sum and
hash is accounted for without joining its messages; one that does not is a suspect. There is one row per 65,536
messages, so this fits the driver. `discrepancies` finds out what is wrong in a suspect block.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds

from crescendo.pipeline.columns import BLOCK, HASH, LOW_SUM, MESSAGES, SENDER, SIDE, SUBSCRIPTION
from crescendo.pipeline.ledger.block_sums import COUNTS, OUT_OF_ORDER, RECEIVED, SENT, SETTLED
from crescendo.pipeline.source.connections import UNKNOWN, Connections

Pair = tuple[int, int]  # subscription, sender
Suspect = tuple[int, int, int]  # subscription, sender, block


@dataclass(frozen=True)
class Balance:
    """The totals of the block sums, and the blocks that differ."""

    sent: dict[int, Counter[str]]  # sender -> counts
    settled: dict[int, int]  # sender -> accepted messages
    received: dict[Pair, Counter[str]]  # corrupt and stray messages belong to no sender: their sender is UNKNOWN
    suspects: list[Suspect]
    suspect_rows: int  # about how many rows must be compared message by message
    out_of_order: int  # deliveries out of order, which are compared even in blocks that balance

    def total_sent(self, count: str) -> int:
        return sum(counts[count] for counts in self.sent.values())

    def total_received(self, count: str) -> int:
        """The sum over the messages of this run in all subscriptions."""
        return sum(counts[count] for (_, sender), counts in self.received.items() if sender != UNKNOWN)

    @property
    def unlisted(self) -> int:
        """Deliveries to receivers that the manifest does not list."""
        return sum(counts[MESSAGES] for (number, _), counts in self.received.items() if number == UNKNOWN)


def read_balance(files: list[Path], connections: Connections) -> Balance:
    """Read the block sums from these files, add them up and compare the sides."""
    sent: dict[int, Counter[str]] = defaultdict(Counter)
    received: dict[Pair, Counter[str]] = defaultdict(Counter)
    settled: dict[int, int] = {}
    owed: dict[Suspect, tuple[int, int, int]] = {}
    arrived: dict[Suspect, tuple[int, int, int]] = {}
    out_of_order = 0
    columns = [SIDE, SUBSCRIPTION, SENDER, BLOCK, LOW_SUM, HASH, *COUNTS]
    for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(columns=columns):
        for row in batch.to_pylist():
            subscription, sender, block = row[SUBSCRIPTION], row[SENDER], row[BLOCK]
            counts = Counter({name: row[name] for name in COUNTS})
            checksums = (row[MESSAGES], row[LOW_SUM], row[HASH])
            if row[SIDE] == SENT:
                sent[sender] += counts
                for number in connections.owed_by.get(sender, ()):
                    owed[number, sender, block] = checksums
            elif row[SIDE] == SETTLED:
                settled[sender] = row[MESSAGES]
            elif row[SIDE] == RECEIVED:
                received[subscription, sender] += counts
                # Deliveries to an unlisted receiver cannot be judged: what it is owed is unknown.
                if UNKNOWN not in {subscription, block}:
                    arrived[subscription, sender, block] = checksums
                    out_of_order += row[OUT_OF_ORDER]
    suspects = sorted(key for key in owed.keys() | arrived.keys() if owed.get(key) != arrived.get(key))
    # A suspect message may have a row for its send, one for its settlement and one per delivery.
    rows = out_of_order + sum(2 * owed.get(key, (0,))[0] + arrived.get(key, (0,))[0] for key in suspects)
    return Balance(dict(sent), settled, dict(received), suspects, rows, out_of_order)
