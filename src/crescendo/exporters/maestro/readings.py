"""What did one inspector see at each look, numbers and words together?

Goes through the parts of one inspector in the order of time and holds one look at a time. Words are recorded only
when they change, so each look has those that were true then. Knows no system and no file format.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pyarrow.parquet as pq

Attributes = dict[str, float | str]


@dataclass
class SheetRow:
    """Entity -> attribute -> number or word."""

    t_ns: int
    entities: dict[str, Attributes] = field(default_factory=dict)


def sheet_rows(reading_files: Iterable[str], event_files: list[str], source: str) -> Iterator[SheetRow]:
    """Every look of a source, in order. Words alone make no look."""
    changes = _texts(event_files, source)
    known: dict[str, Attributes] = {}
    for look in _numbers(reading_files, source):
        while changes and changes[0][0] <= look.t_ns:
            for entity, words in changes.pop(0)[1].items():
                known.setdefault(entity, {}).update(words)
        for entity, numbers in look.entities.items():
            look.entities[entity] = {**known.get(entity, {}), **numbers}
        yield look


def words_of(event_files: list[str], source: str) -> dict[str, Attributes]:
    """The last words on every entity."""
    known: dict[str, Attributes] = {}
    for _, change in _texts(event_files, source):
        for entity, words in change.items():
            known.setdefault(entity, {}).update(words)
    return known


def _numbers(files: Iterable[str], source: str) -> Iterator[SheetRow]:
    look: SheetRow | None = None
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches():
            for row in batch.to_pylist():
                if row["source"] != source:
                    continue
                if look is None or row["t_ns"] != look.t_ns:
                    if look is not None:
                        yield look
                    look = SheetRow(row["t_ns"])
                look.entities.setdefault(row["entity"], {})[row["metric"]] = row["value"]
    if look is not None:
        yield look


def _texts(files: list[str], source: str) -> list[tuple[int, dict[str, dict[str, str]]]]:
    if not files:
        return []
    mine = (ds.field("kind") == "texts") & (ds.field("source") == source)
    rows: list[dict[str, Any]] = ds.dataset(files, format="parquet").to_table(filter=mine).sort_by("t_ns").to_pylist()
    found = []
    for row in rows:
        try:
            found.append((row["t_ns"], msgspec.json.decode(row["detail"], type=dict[str, dict[str, str]])))
        except msgspec.MsgspecError:
            continue  # words that cannot be read leave their columns empty
    return found
