"""Is every message accounted for?

Adds up the block accounts and the discrepancies found in them: in all, for each sender and for each subscription. A
message that is owed and not lost was delivered. Adds; it looks at no message.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.pipeline import accounts
from crescendo.pipeline.columns import ACKNOWLEDGED, COUNT, KIND, SENDER, SUBSCRIPTION
from crescendo.pipeline.discrepancies import DUPLICATED, LOST, REORDERED, UNRECORDED
from crescendo.pipeline.parties import NOBODY, Parties
from crescendo.record.summary import Ledger

TOTAL, BY_SENDER, BY_SUBSCRIPTION = "total", "sender", "subscription"

Pair = tuple[int, int]  # subscription, sender
Findings = dict[Pair, Counter[str]]

_ADDED = (
    accounts.SENT, accounts.SENT_MEASURED, accounts.ARRIVED, accounts.ARRIVED_MEASURED, accounts.BYTES_MEASURED,
    accounts.SETTLED, accounts.OUT_OF_ORDER, accounts.CORRUPT, accounts.STRAY,
)  # fmt: skip


@dataclass(frozen=True)
class Balance:
    """The accounts, added up for each subscription and sender, and what each sender did whomever it was for."""

    pairs: dict[Pair, Counter[str]]
    senders: dict[int, Counter[str]]
    suspects: int  # rows to look at one by one

    def sent(self, column: str = accounts.SENT) -> int:
        return sum(counts[column] for counts in self.senders.values())

    def arrived(self, column: str = accounts.ARRIVED) -> int:
        """Over the messages of this run, all subscriptions together."""
        return sum(counts[column] for (_, sender), counts in self.pairs.items() if sender != NOBODY)

    @property
    def unlisted(self) -> int:
        """Deliveries to receivers that the manifest does not list."""
        return sum(counts[accounts.ARRIVED] for (number, _), counts in self.pairs.items() if number == NOBODY)


def read_balance(files: list[Path]) -> Balance:
    columns = [SUBSCRIPTION, SENDER, accounts.DIFFERS, *_ADDED]
    table = ds.dataset([str(file) for file in files], format="parquet").to_table(columns=columns)
    doubtful = table.filter(ds.field(accounts.DIFFERS))
    suspects = sum(
        int(pc.sum(doubtful[name]).as_py() or 0) for name in (accounts.SENT, accounts.SENT, accounts.ARRIVED)
    )
    sums = [(name, "sum") for name in _ADDED]
    pairs: dict[Pair, Counter[str]] = {}
    senders: dict[int, Counter[str]] = defaultdict(Counter)
    for row in table.group_by([SUBSCRIPTION, SENDER], use_threads=False).aggregate(sums).to_pylist():
        counts = Counter({name: int(row[f"{name}_sum"]) for name in _ADDED})
        pairs[row[SUBSCRIPTION], row[SENDER]] = counts
        if row[SENDER] != NOBODY:
            # A message stands in the account of each subscription it was for; the sender sent it once.
            senders[row[SENDER]] |= counts
        suspects += counts[accounts.OUT_OF_ORDER] if row[SUBSCRIPTION] != NOBODY else 0
    return Balance(pairs, dict(senders), suspects)


def read_findings(files: list[Path], parties: Parties) -> Findings:
    """How often each kind of discrepancy happened; acknowledged losses count under a kind of their own."""
    numbers = {name: number for number, name in enumerate(parties.subscriptions)}
    findings: Findings = defaultdict(Counter)
    keys = [KIND, SUBSCRIPTION, SENDER, ACKNOWLEDGED]
    for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(columns=[*keys, COUNT]):
        table = pa.Table.from_batches([batch]).group_by(keys, use_threads=False).aggregate([(COUNT, "sum")])
        for row in table.to_pylist():
            kind = ACKNOWLEDGED if row[ACKNOWLEDGED] else row[KIND]
            findings[numbers[row[SUBSCRIPTION]], row[SENDER]][kind] += row[f"{COUNT}_sum"]
    return dict(findings)


def ledger(balance: Balance, findings: Findings, parties: Parties) -> list[Ledger]:
    """The total first, then the senders, then the subscriptions, in the order of their numbers."""
    owed = {(number, sender) for sender, numbers in parties.owed_by.items() for number in numbers}
    pairs = sorted(owed | set(findings))
    senders = sorted({*parties.owed_by, *balance.senders})
    by_sender: dict[int, list[Pair]] = defaultdict(list)
    by_subscription: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_subscription[pair[0]].append(pair)
        by_sender[pair[1]].append(pair)
    numbers = range(len(parties.subscriptions))
    account = _Account(balance, findings)
    rows = [account.row(TOTAL, pairs, senders, [NOBODY, *numbers])]
    rows += [account.row(BY_SENDER, by_sender[sender], [sender], [], sender=sender) for sender in senders]
    for number, name in enumerate(parties.subscriptions):
        chosen = by_subscription[number]
        owing = [sender for _, sender in chosen if number in parties.owed_by.get(sender, ())]
        rows.append(account.row(BY_SUBSCRIPTION, chosen, owing, [number], subscription=name))
    return rows


@dataclass(frozen=True)
class _Account:
    balance: Balance
    findings: Findings

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
        """One line: the messages of these pairs, the sends of these senders, the refuse of these subscriptions."""
        found: Counter[str] = Counter()
        owed = 0
        for pair in pairs:
            found.update(self.findings.get(pair, Counter()))
            owed += self.balance.pairs.get(pair, Counter())[accounts.SENT]
        sends = [self.balance.senders.get(number, Counter()) for number in senders]
        refuse = [self.balance.pairs.get((number, NOBODY), Counter()) for number in subscriptions]
        return Ledger(
            scope=scope,
            sender=sender,
            subscription=subscription,
            sent=sum(counts[accounts.SENT] for counts in sends),
            owed=owed,
            settled=sum(counts[accounts.SETTLED] for counts in sends),
            delivered=owed - found[LOST] - found[ACKNOWLEDGED],
            lost_acknowledged=found[ACKNOWLEDGED],
            lost_unacknowledged=found[LOST],
            duplicated=found[DUPLICATED],
            reordered=found[REORDERED],
            corrupt=sum(counts[accounts.CORRUPT] for counts in refuse),
            stray=sum(counts[accounts.STRAY] for counts in refuse),
            unrecorded=found[UNRECORDED],
        )
