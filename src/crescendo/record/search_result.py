"""What has a search found, in one small file?

`search.json` is written after every try, next to the recordings of the tries, and read by the page of the search and by
other programs. Times are nanoseconds, rates are messages per second. Decides nothing: `model.search` does.
"""

from pathlib import Path

from msgspec import Struct

from crescendo.model.search import SearchAnswer
from crescendo.model.verdict import Outcome
from crescendo.record.documents import read_document, write_document

SEARCH_FILE = "search.json"
SCHEMA = 1


class Try(Struct, frozen=True):
    """One run of a search, and what it says about its rate."""

    rate: float
    outcome: Outcome
    run: str  # the directory of its recording, next to the result file; empty when there is none
    reasons: list[str]
    sustained: float | None = None
    backlog_growth: float | None = None  # messages per second
    latency_kind: str = ""  # response, or transfer where that is unknown; empty when nothing arrived
    percentiles_ns: dict[str, int | None] = {}  # of that latency, in the measure phase; null with too few samples


class SearchResult(Struct, frozen=True):
    """Everything a search has found so far; the answer is None while it is in progress."""

    name: str
    limits: dict[str, str]
    confirm: str
    answer: SearchAnswer | None
    tries: list[Try]
    schema: int = SCHEMA


def write_search_result(directory: Path, result: SearchResult) -> None:
    write_document(directory / SEARCH_FILE, result)


def read_search_result(directory: Path) -> SearchResult:
    return read_document(
        directory / SEARCH_FILE,
        SearchResult,
        noun="the result of a search",
        missing=f"{directory}: not a search, because it has no {SEARCH_FILE}",
        version_field="schema",
        version=SCHEMA,
        supported=f"{SCHEMA}; search again",
    )
