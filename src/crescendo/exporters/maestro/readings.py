"""What did one inspector read at each inspection, numbers and texts together?

Reads the parts of one inspector in time order and holds one inspection at a time. Texts are recorded only when they
change, so each inspection gets the texts that were current then. Knows no system and no export format.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from crescendo.record.schema import EVENTS, READINGS, column_names

Attributes = dict[str, float | str]

_T_NS, _SOURCE, _ENTITY, _METRIC, _VALUE = column_names(READINGS)
_EVENT_T_NS, _EVENT_SOURCE, _EVENT_KIND, _EVENT_DETAIL = column_names(EVENTS)


@dataclass
class EntityReadings:
    """One inspection: entity -> attribute -> number or text."""

    t_ns: int
    entities: dict[str, Attributes] = field(default_factory=dict)


def entity_readings(reading_files: Iterable[str], event_files: list[str], source: str) -> Iterator[EntityReadings]:
    """Every inspection of a source, in order. Texts without numbers are not an inspection."""
    changes = _texts(event_files, source)
    known: dict[str, Attributes] = {}
    for readings in _numbers(reading_files, source):
        while changes and changes[0][0] <= readings.t_ns:
            for entity, texts in changes.pop(0)[1].items():
                known.setdefault(entity, {}).update(texts)
        for entity, numbers in readings.entities.items():
            readings.entities[entity] = {**known.get(entity, {}), **numbers}
        yield readings


def last_texts(event_files: list[str], source: str) -> dict[str, Attributes]:
    """The last recorded texts of every entity."""
    known: dict[str, Attributes] = {}
    for _, change in _texts(event_files, source):
        for entity, texts in change.items():
            known.setdefault(entity, {}).update(texts)
    return known


def _numbers(files: Iterable[str], source: str) -> Iterator[EntityReadings]:
    readings: EntityReadings | None = None
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches():
            for row in batch.to_pylist():
                if row[_SOURCE] != source:
                    continue
                if readings is None or row[_T_NS] != readings.t_ns:
                    if readings is not None:
                        yield readings
                    readings = EntityReadings(row[_T_NS])
                readings.entities.setdefault(row[_ENTITY], {})[row[_METRIC]] = row[_VALUE]
    if readings is not None:
        yield readings


def _texts(files: list[str], source: str) -> list[tuple[int, dict[str, dict[str, str]]]]:
    if not files:
        return []
    mine = (ds.field(_EVENT_KIND) == "texts") & (ds.field(_EVENT_SOURCE) == source)
    table = ds.dataset(files, format="parquet").to_table(filter=mine).sort_by(_EVENT_T_NS)
    rows: list[dict[str, Any]] = table.to_pylist()
    found = []
    for row in rows:
        try:
            found.append((row[_EVENT_T_NS], msgspec.json.decode(row[_EVENT_DETAIL], type=dict[str, dict[str, str]])))
        except msgspec.MsgspecError:
            continue  # unreadable texts leave their columns empty
    return found
