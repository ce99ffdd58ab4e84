"""Which runs are good enough to measure others by, and which alarms were dismissed?

One JSON file with the values of the baseline's runs, so that the recordings may be deleted; written atomically. Judges
nothing.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.record.documents import read_document, write_document

SCHEMA = 1


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


class Dismissal(Struct, frozen=True):
    """An alarm that a person looked at and does not want to hear about again."""

    fingerprint: str
    metric: str
    run: str  # the first bad one
    note: str


class Baselines(Struct, frozen=True):
    """Everything that was set and dismissed, in one file."""

    baselines: dict[str, Baseline] = {}
    dismissed: list[Dismissal] = []
    schema: int = SCHEMA

    def with_baseline(self, baseline: Baseline) -> "Baselines":
        """A new baseline replaces the one with its fingerprint, and what was dismissed about that one."""
        kept = [each for each in self.dismissed if each.fingerprint != baseline.fingerprint]
        known = {**self.baselines, baseline.fingerprint: baseline}
        return msgspec.structs.replace(self, baselines=known, dismissed=kept)

    def is_dismissed(self, fingerprint: str, metric: str, run: str) -> bool:
        return any((each.fingerprint, each.metric, each.run) == (fingerprint, metric, run) for each in self.dismissed)


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
