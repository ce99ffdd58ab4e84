"""How many messages do the imported files hold?

Rows are not messages: a row of `settled` covers a range of them, a row of `rates` those of a period, a row of
`histograms` those of a bucket. Where the files contain both messages and counts of the same messages, the messages are
counted once, from their own rows. Reads finished parts only, a few columns of one part at a time.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crescendo.record.manifest import PartRecord
from crescendo.record.schema import HISTOGRAMS, RATES, RECEIVED, SENT, SETTLED

TIMED = "timed"
"""Messages whose latency is in a histogram."""

_COUNTED_BY = {"sender": SENT, "receiver": RECEIVED}  # the role of a peer -> what its rates count


def message_counts(run_dir: Path, parts: Iterable[PartRecord]) -> dict[str, int]:
    """Messages sent, received, settled and timed, without those that are not in the files at all."""
    recorded: Counter[str] = Counter()  # in tables of messages
    counted: Counter[str] = Counter()  # in tables of counts
    for part in parts:
        path = run_dir / part.path
        if part.table in {SENT, RECEIVED}:
            recorded[part.table] += part.rows
        elif part.table == SETTLED:
            ranges = pq.read_table(path, columns=["first_seq", "last_seq"])
            recorded[SETTLED] += _sum(pc.subtract(ranges["last_seq"], ranges["first_seq"])) + part.rows
        elif part.table == RATES:
            rates = pq.read_table(path, columns=["role", "messages"])
            for role, table in _COUNTED_BY.items():
                counted[table] += _sum(rates.filter(pc.equal(rates["role"], role))["messages"])
        elif part.table == HISTOGRAMS:
            counted[TIMED] += _sum(pq.read_table(path, columns=["count"])["count"])
    found = {**counted, **recorded}  # rows of messages replace counts of the same messages
    return {name: found[name] for name in (SENT, RECEIVED, SETTLED, TIMED) if found.get(name)}


def _sum(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)
