"""How much does a system sustain at each level of a factor, in one small file?

`capacity.json` lies next to the searches, one per level, and is written after each of them. Rates are messages per
second. Decides nothing.
"""

from pathlib import Path

from msgspec import Struct

from crescendo.record.documents import read_document, write_document

CAPACITY_FILE = "capacity.json"
SCHEMA = 1


class CapacityLevel(Struct, frozen=True):
    """The answer of the search at one level; rates are None where nothing was confirmed."""

    level: str
    number: float | None  # the level, if it is a number
    rate: float | None  # the highest that passes
    above: float | None  # the lowest that fails
    complete: bool
    reason: str
    search: str  # its directory, next to this file


class CapacityResult(Struct, frozen=True):
    """All levels so far, in the order in which they were given."""

    name: str
    factor: str
    limits: dict[str, str]
    levels: list[CapacityLevel]
    schema: int = SCHEMA


def write_capacity(directory: Path, result: CapacityResult) -> None:
    write_document(directory / CAPACITY_FILE, result)


def read_capacity(directory: Path) -> CapacityResult:
    return read_document(
        directory / CAPACITY_FILE,
        CapacityResult,
        noun="the capacities of a system",
        missing=f"{directory}: it has no {CAPACITY_FILE}; run the search with --sweep",
        version_field="schema",
        version=SCHEMA,
        supported=f"{SCHEMA}; search again",
    )
