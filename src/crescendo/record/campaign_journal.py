"""What has a campaign done so far, in one small file?

`campaign.json` lies next to the runs of a campaign and is written atomically before and after every run, so that a
crash loses at most the run in progress. It also has what the page of the campaign shows of the design. Decides nothing.
"""

from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from crescendo.record.documents import read_document, write_document

CAMPAIGN_FILE = "campaign.json"
SCHEMA = 1


class AttemptState(StrEnum):
    """What became of one run of a campaign."""

    STARTED = "started"  # or the campaign was killed during it
    COUNTED = "counted"  # its verdict rests on sound evidence: pass or fail
    INVALID = "invalid"  # nothing can be said; it is run again, a stated number of times
    INTERRUPTED = "interrupted"  # the campaign ended during it; it is run again


class Attempt(Struct, frozen=True):
    """One run of a campaign: which repeat of which point, and what became of it."""

    point: int
    repeat: int
    state: AttemptState
    run: str = ""  # the directory of its recording, next to this file; empty when there is none
    outcome: str = ""  # its verdict
    reason: str = ""
    seconds: float = 0.0  # how long it took, with start and analysis
    values: dict[str, float] = {}  # metric -> value, in base units
    stand_ins: int = 0  # relays that took the place of routers in it


class DesignPoint(Struct, frozen=True):
    """One combination of levels: as level numbers, or shares of their range, and as people read them."""

    row: list[float]
    levels: list[str]


class JournalFactor(Struct, frozen=True):
    """One factor and its levels, without secrets."""

    name: str
    levels: list[str]
    keys: list[str]


class CampaignJournal(Struct, frozen=True):
    """The design of a campaign, and every run so far. `ending` is empty while there are runs to do."""

    name: str
    fingerprint: str  # of what decides the runs: the same file continues a campaign, a changed one does not
    design: str
    factors: list[JournalFactor]
    points: list[DesignPoint]
    metrics: list[str]
    generators: dict[str, list[str]] = {}
    aliases: list[str] = []
    repeat: int = 1
    seed: int = 1
    attempts: list[Attempt] = []
    ending: str = ""
    complete: bool = False
    experiment: dict[str, Any] = {}  # redacted
    schema: int = SCHEMA

    @property
    def counted(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.state is AttemptState.COUNTED]

    def values_of(self, metric: str) -> list[list[float]]:
        """The values of each point, in the order of its repeats; a point without any has an empty list."""
        found: list[list[float]] = [[] for _ in self.points]
        for attempt in sorted(self.counted, key=lambda each: each.repeat):
            if metric in attempt.values:
                found[attempt.point].append(attempt.values[metric])
        return found


def write_journal(directory: Path, journal: CampaignJournal) -> None:
    write_document(directory / CAMPAIGN_FILE, journal)


def read_journal(directory: Path) -> CampaignJournal:
    return read_document(
        directory / CAMPAIGN_FILE,
        CampaignJournal,
        noun="the journal of a campaign",
        missing=f"{directory}: not a campaign, because it has no {CAMPAIGN_FILE}",
        version_field="schema",
        version=SCHEMA,
        supported=f"{SCHEMA}; run the campaign again",
        check=_check,
    )


def _check(journal: CampaignJournal) -> None:
    for attempt in journal.attempts:
        if not 0 <= attempt.point < len(journal.points) or Path(attempt.run).name != attempt.run:
            raise ValueError("an attempt names a point or a run that cannot be")
