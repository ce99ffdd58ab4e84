"""What does the page of a study show? Published figures next to ours, in base units. Computes nothing."""

from pathlib import Path

from msgspec import Struct

from crescendo.record.documents import read_document, write_document

STUDY_FILE = "study.json"
SCHEMA = 1


class StudyPoint(Struct, frozen=True):
    """One published figure and what was measured here; the ends are those of the 95 % interval of the mean."""

    label: str
    metric: str
    unit_metric: str  # how values are written
    published: float | None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    repeats: int = 0
    differs: str = ""


class StudyPartResult(Struct, frozen=True):
    """One experiment of a study. `reason` says why it was not measured."""

    name: str
    file: str
    question: str
    points: list[StudyPoint]
    page: str = ""
    reason: str = ""
    remarks: list[str] = []


class StudyDocument(Struct, frozen=True):
    """A study as it was measured here."""

    name: str
    title: str
    source: str
    machine: str
    differs: list[str]
    parts: list[StudyPartResult]
    schema: int = SCHEMA


def write_study(directory: Path, document: StudyDocument) -> None:
    write_document(directory / STUDY_FILE, document)


def read_study_document(directory: Path) -> StudyDocument:
    return read_document(
        directory / STUDY_FILE,
        StudyDocument,
        noun="the result of a study",
        missing=f"{directory}: not a study, because it has no {STUDY_FILE}",
        version_field="schema",
        version=SCHEMA,
        supported=f"{SCHEMA}; run the study again, which only recomputes it",
    )
