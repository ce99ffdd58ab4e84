"""What is a study?

The experiments of a publication, in their short form, and the figures that it printed, each with what differs here and
why. A study is a value, read from a data file of this package; adding one is adding a file and its name. Runs nothing.
"""

from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import suggestion
from crescendo.model.units import Duration

STUDIES = ("maestro", "mlmq-asl", "federation", "stomp-activemq", "amqperf")


class PublishedFigure(Struct, frozen=True, forbid_unknown_fields=True):
    """One printed number, and which of our metrics measures the same."""

    label: str
    metric: str | list[str]  # several are added up
    published: float | str  # a number, or a time such as 2.263ms
    at: dict[str, str] = {}  # levels of the factors of a campaign
    per_second: bool = False  # divide a count by the length of the measure phase
    differs: str = ""  # beyond what the whole study differs in

    @property
    def metrics(self) -> list[str]:
        return [self.metric] if isinstance(self.metric, str) else self.metric

    @property
    def value(self) -> float:
        """In base units."""
        return float(Duration.parse(self.published)) if isinstance(self.published, str) else float(self.published)


class StudyPart(Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment or campaign of a study; its file is relative to the directory of experiments."""

    file: str
    question: str
    figures: list[PublishedFigure] = []
    set: dict[str, Any] = {}  # what the short form changes in an experiment

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2].removesuffix(".yml")


class Study(Struct, frozen=True, forbid_unknown_fields=True):
    """One publication."""

    title: str
    source: str
    differs: list[str]
    parts: list[StudyPart]

    def __post_init__(self) -> None:
        for part in self.parts:
            for figure in part.figures:
                if figure.value <= 0:
                    raise ValueError(f"{part.name}: {figure.label}: a published figure must be above 0")


@cache
def read_study(name: str) -> Study:
    """A study by its name. Raises ConfigError if there is none."""
    if name not in STUDIES:
        raise ConfigError(f"{name}: there is no such study; {suggestion(name, STUDIES)}")
    text = resources.files("crescendo.studies").joinpath("figures", f"{name}.yml").read_bytes()
    return msgspec.yaml.decode(text, type=Study)
