"""Which blocks of messages do not balance?

Compares what was sent with what each subscription got of it, block by block. A block that agrees in count, sum and
hash is accounted for without ever bringing its messages together; one that does not is a suspect. There is a row for
65,536 messages, so this fits the driver. What is wrong in a suspect block is for `discrepancies` to say.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds

from crescendo.pipeline.columns import BLOCK, HASH, LOW_SUM, MESSAGES, SENDER, SIDE, SUBSCRIPTION
from crescendo.pipeline.ledger.block_sums import COUNTS, OUT_OF_ORDER, RECEIVED, SENT, SETTLED
from crescendo.pipeline.source.connections import NOBODY, Connections

Pair = tuple[int, int]  # subscription, sender
Suspect = tuple[int, int, int]  # subscription, sender, block


@dataclass(frozen=True)
class Balance:
    """The accounts, added up."""

    sent: dict[int, Counter[str]]  # sender -> counts
    settled: dict[int, int]  # sender -> accepted messages
    received: dict[Pair, Counter[str]]  # under sender -1: what belongs to no sender
    suspects: list[Suspect]
    suspect_rows: int  # about how many rows there are to look at one by one
    late: int  # deliveries out of order, which are looked at wherever they are

    def total_sent(self, count: str) -> int:
        return sum(counts[count] for counts in self.sent.values())

    def total_received(self, count: str) -> int:
        """Over the messages of this run, all subscriptions together."""
        return sum(counts[count] for (_, sender), counts in self.received.items() if sender != NOBODY)

    @property
    def unlisted(self) -> int:
        """Deliveries to receivers that the manifest does not list."""
        return sum(counts[MESSAGES] for (number, _), counts in self.received.items() if number == NOBODY)


def read_balance(files: list[Path], connections: Connections) -> Balance:
    """Add up and compare the accounts that these files hold."""
    sent: dict[int, Counter[str]] = defaultdict(Counter)
    received: dict[Pair, Counter[str]] = defaultdict(Counter)
    settled: dict[int, int] = {}
    owed: dict[Suspect, tuple[int, int, int]] = {}
    gotten: dict[Suspect, tuple[int, int, int]] = {}
    late = 0
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
                # What an unlisted receiver got cannot be judged: nobody knows what it was owed.
                if NOBODY not in {subscription, block}:
                    gotten[subscription, sender, block] = checksums
                    late += row[OUT_OF_ORDER]
    suspects = sorted(key for key in owed.keys() | gotten.keys() if owed.get(key) != gotten.get(key))
    # A suspect message may have a row for being sent, for being settled and for each time it arrived.
    rows = late + sum(2 * owed.get(key, (0,))[0] + gotten.get(key, (0,))[0] for key in suspects)
    return Balance(dict(sent), settled, dict(received), suspects, rows, late)
