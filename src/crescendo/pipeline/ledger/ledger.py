"""Is every message accounted for?

Adds up the balance of the blocks and their discrepancies: in total, per sender and per subscription. A message that is
owed and neither lost nor undelivered was delivered. Only adds; reads no messages.
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
from crescendo.pipeline.ledger.discrepancies import DUPLICATED, LOST, REORDERED, UNDELIVERED, UNRECORDED
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.per_run import UNKNOWN
from crescendo.pipeline.source.run_slices import RunSlice
from crescendo.record.summary import Ledger

TOTAL, BY_SENDER, BY_SUBSCRIPTION = "total", "sender", "subscription"

Discrepancies = dict[Pair, Counter[str]]


def read_discrepancies(files: list[Path], connections: Connections) -> Discrepancies:
    """The number of discrepancies of each kind; acknowledged losses are a kind of their own."""
    numbers = {name: number for number, name in enumerate(connections.subscriptions)}
    found: Discrepancies = defaultdict(Counter)
    keys = [KIND, SUBSCRIPTION, SENDER, ACKNOWLEDGED]
    for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(columns=[*keys, COUNT]):
        table = pa.Table.from_batches([batch]).group_by(keys, use_threads=False).aggregate([(COUNT, "sum")])
        for row in table.to_pylist():
            kind = ACKNOWLEDGED if row[ACKNOWLEDGED] and row[KIND] == LOST else row[KIND]
            found[numbers[row[SUBSCRIPTION]], row[SENDER]][kind] += row[f"{COUNT}_sum"]
    return dict(found)


def ledger(balance: Balance, found: Discrepancies, connections: Connections) -> list[Ledger]:
    """The total first, then the senders, then the subscriptions, each in the order of their numbers."""
    owed = {(number, sender) for sender, numbers in connections.owed_by.items() for number in numbers}
    pairs = sorted(owed | found.keys())
    by_sender: dict[int, list[Pair]] = defaultdict(list)
    by_subscription: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_subscription[pair[0]].append(pair)
        by_sender[pair[1]].append(pair)
    senders = sorted({*connections.owed_by, *balance.sent, *balance.settled, *by_sender})
    builder = _RowBuilder(balance, found, owed)
    rows = [builder.row(TOTAL, pairs, senders, [UNKNOWN, *range(len(connections.subscriptions))])]
    rows += [builder.row(BY_SENDER, by_sender[sender], [sender], [], sender=sender) for sender in senders]
    for number, name in enumerate(connections.subscriptions):
        chosen = by_subscription[number]
        owing = [sender for _, sender in chosen if (number, sender) in owed]
        rows.append(builder.row(BY_SUBSCRIPTION, chosen, owing, [number], subscription=name))
    return rows


def slice_ledger(balance: Balance, found: Discrepancies, connections: Connections, run_slice: RunSlice) -> Ledger:
    """The account of one slice: of its senders' messages, or of what its own subscriptions were owed."""
    owed = {(number, sender) for sender, numbers in connections.owed_by.items() for number in numbers}
    own = {connections.subscription_of[receiver] for receiver in run_slice.receivers}
    if run_slice.by_receiver:
        pairs = [pair for pair in sorted(owed | found.keys()) if pair[0] in own]
    else:
        pairs = [pair for pair in sorted(owed | found.keys()) if pair[1] in run_slice.senders]
    # Whose corrupt and stray messages are is unknown: each slice has those of the subscriptions that it uses.
    used = own if run_slice.by_receiver else {number for number, _ in pairs}
    return _RowBuilder(balance, found, owed).row(str(run_slice.scope), pairs, sorted(run_slice.senders), sorted(used))


@dataclass(frozen=True)
class _RowBuilder:
    balance: Balance
    found: Discrepancies
    owed: set[Pair]

    def row(
        self,
        scope: str,
        pairs: Iterable[Pair],
        senders: Iterable[int],
        subscriptions: Iterable[int],
        *,
        sender: int | None = None,
        subscription: str | None = None,
    ) -> Ledger:
        """The messages owed by these pairs, sent by these senders, and unusable in these subscriptions."""
        nothing: Counter[str] = Counter()
        found: Counter[str] = Counter()
        owed = 0
        for pair in pairs:
            found.update(self.found.get(pair, nothing))
            owed += self.balance.sent.get(pair[1], nothing)[MESSAGES] if pair in self.owed else 0
        senders = list(senders)
        unusable = [self.balance.received.get((number, UNKNOWN), nothing) for number in subscriptions]
        return Ledger(
            scope=scope,
            sender=sender,
            subscription=subscription,
            sent=sum(self.balance.sent.get(number, nothing)[MESSAGES] for number in senders),
            owed=owed,
            settled=sum(self.balance.settled.get(number, 0) for number in senders),
            delivered=owed - found[LOST] - found[ACKNOWLEDGED] - found[UNDELIVERED],
            lost_acknowledged=found[ACKNOWLEDGED],
            lost_unacknowledged=found[LOST],
            duplicated=found[DUPLICATED],
            reordered=found[REORDERED],
            corrupt=sum(counts[CORRUPT] for counts in unusable),
            stray=sum(counts[STRAY] for counts in unusable),
            unrecorded=found[UNRECORDED],
            undelivered=found[UNDELIVERED],
        )
