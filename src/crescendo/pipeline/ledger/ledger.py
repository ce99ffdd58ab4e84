"""Is every message accounted for?

Adds up the balance of the blocks and the discrepancies found in them: in all, for each sender and for each
subscription. A message that is owed and not lost was delivered. Adds; it looks at no message.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from crescendo.pipeline.columns import ACKNOWLEDGED, COUNT, KIND, MESSAGES, SENDER, SUBSCRIPTION
from crescendo.pipeline.ledger.balance import Balance, Pair
from crescendo.pipeline.ledger.block_sums import CORRUPT, STRAY
from crescendo.pipeline.ledger.discrepancies import DUPLICATED, LOST, REORDERED, UNRECORDED
from crescendo.pipeline.source.connections import NOBODY, Connections
from crescendo.record.summary import Ledger

TOTAL, BY_SENDER, BY_SUBSCRIPTION = "total", "sender", "subscription"

Discrepancies = dict[Pair, Counter[str]]


def read_discrepancies(files: list[Path], connections: Connections) -> Discrepancies:
    """How often each kind of discrepancy happened; acknowledged losses count under a kind of their own."""
    numbers = {name: number for number, name in enumerate(connections.subscriptions)}
    found: Discrepancies = defaultdict(Counter)
    keys = [KIND, SUBSCRIPTION, SENDER, ACKNOWLEDGED]
    for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(columns=[*keys, COUNT]):
        table = pa.Table.from_batches([batch]).group_by(keys, use_threads=False).aggregate([(COUNT, "sum")])
        for row in table.to_pylist():
            kind = ACKNOWLEDGED if row[ACKNOWLEDGED] else row[KIND]
            found[numbers[row[SUBSCRIPTION]], row[SENDER]][kind] += row[f"{COUNT}_sum"]
    return dict(found)


def ledger(balance: Balance, found: Discrepancies, connections: Connections) -> list[Ledger]:
    """The total first, then the senders, then the subscriptions, in the order of their numbers."""
    owed = {(number, sender) for sender, numbers in connections.owed_by.items() for number in numbers}
    pairs = sorted(owed | found.keys())
    by_sender: dict[int, list[Pair]] = defaultdict(list)
    by_subscription: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_subscription[pair[0]].append(pair)
        by_sender[pair[1]].append(pair)
    senders = sorted({*connections.owed_by, *balance.sent, *balance.settled, *by_sender})
    books = _Books(balance, found, owed)
    rows = [books.line(TOTAL, pairs, senders, [NOBODY, *range(len(connections.subscriptions))])]
    rows += [books.line(BY_SENDER, by_sender[sender], [sender], [], sender=sender) for sender in senders]
    for number, name in enumerate(connections.subscriptions):
        chosen = by_subscription[number]
        owing = [sender for _, sender in chosen if (number, sender) in owed]
        rows.append(books.line(BY_SUBSCRIPTION, chosen, owing, [number], subscription=name))
    return rows


@dataclass(frozen=True)
class _Books:
    balance: Balance
    found: Discrepancies
    owed: set[Pair]

    def line(
        self,
        scope: str,
        pairs: Iterable[Pair],
        senders: Iterable[int],
        subscriptions: Iterable[int],
        *,
        sender: int | None = None,
        subscription: str | None = None,
    ) -> Ledger:
        """The messages of these pairs, what these senders sent, and what these subscriptions got besides."""
        nothing: Counter[str] = Counter()
        found: Counter[str] = Counter()
        owed = 0
        for pair in pairs:
            found.update(self.found.get(pair, nothing))
            owed += self.balance.sent.get(pair[1], nothing)[MESSAGES] if pair in self.owed else 0
        senders = list(senders)
        unusable = [self.balance.received.get((number, NOBODY), nothing) for number in subscriptions]
        return Ledger(
            scope=scope,
            sender=sender,
            subscription=subscription,
            sent=sum(self.balance.sent.get(number, nothing)[MESSAGES] for number in senders),
            owed=owed,
            settled=sum(self.balance.settled.get(number, 0) for number in senders),
            delivered=owed - found[LOST] - found[ACKNOWLEDGED],
            lost_acknowledged=found[ACKNOWLEDGED],
            lost_unacknowledged=found[LOST],
            duplicated=found[DUPLICATED],
            reordered=found[REORDERED],
            corrupt=sum(counts[CORRUPT] for counts in unusable),
            stray=sum(counts[STRAY] for counts in unusable),
            unrecorded=found[UNRECORDED],
        )
