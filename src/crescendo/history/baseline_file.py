"""Which runs are good enough to measure others by, and which alarms were reviewed?

One JSON file with the values of the baseline's runs, so that the recordings may be deleted; written atomically. Judges
nothing.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.record.documents import read_document, write_document

SCHEMA = 1
CONFIRMED, DISMISSED = "confirmed", "dismissed"


class BaselineRun(Struct, frozen=True):
    """One run: when it started, and what it measured, by metric."""

    name: str
    started_ns: int
    values: dict[str, float]


class Baseline(Struct, frozen=True):
    """The runs with one fingerprint that others are compared with."""

    fingerprint: str
    experiment: str
    runs: list[BaselineRun]
    note: str = ""

    @property
    def metrics(self) -> list[str]:
        """What its runs measured."""
        return list(dict.fromkeys(name for run in self.runs for name in run.values))


class ReviewedChange(Struct, frozen=True):
    """A change that a person looked at: a regression, or nothing to hear about again."""

    fingerprint: str
    metric: str
    run: str  # the first bad one
    note: str


class Baselines(Struct, frozen=True):
    """Everything that was set and dismissed, in one file."""

    baselines: dict[str, Baseline] = {}
    dismissed: list[ReviewedChange] = []
    confirmed: list[ReviewedChange] = []
    schema: int = SCHEMA

    def with_baseline(self, baseline: Baseline) -> "Baselines":
        """A new baseline replaces the one with its fingerprint, and what was said about changes since that one."""
        dismissed, confirmed = (
            [each for each in reviewed if each.fingerprint != baseline.fingerprint]
            for reviewed in (self.dismissed, self.confirmed)
        )
        known = {**self.baselines, baseline.fingerprint: baseline}
        return msgspec.structs.replace(self, baselines=known, dismissed=dismissed, confirmed=confirmed)

    def with_review(self, change: ReviewedChange, state: str) -> "Baselines":
        """The change is confirmed or dismissed now, whatever was said about it before."""
        dismissed, confirmed = (
            [each for each in reviewed if _key(each) != _key(change)] for reviewed in (self.dismissed, self.confirmed)
        )
        (confirmed if state == CONFIRMED else dismissed).append(change)
        return msgspec.structs.replace(self, dismissed=dismissed, confirmed=confirmed)

    def review(self, fingerprint: str, metric: str, run: str) -> tuple[str, str]:
        """What a person said about a change, and the note; empty if nobody did."""
        for state, reviewed in ((CONFIRMED, self.confirmed), (DISMISSED, self.dismissed)):
            for each in reviewed:
                if _key(each) == (fingerprint, metric, run):
                    return state, each.note
        return "", ""

    def is_dismissed(self, fingerprint: str, metric: str, run: str) -> bool:
        return self.review(fingerprint, metric, run)[0] == DISMISSED


def _key(change: ReviewedChange) -> tuple[str, str, str]:
    return change.fingerprint, change.metric, change.run


def write_baselines(path: Path, baselines: Baselines) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_document(path, baselines)


def read_baselines(path: Path) -> Baselines:
    """The file's content; nothing if there is no file yet."""
    if not path.exists():
        return Baselines()
    return read_document(
        path,
        Baselines,
        noun="a file of baselines",
        missing=f"{path}: no such file",
        version_field="schema",
        version=SCHEMA,
        supported=f"{SCHEMA}; set the baselines again",
    )
