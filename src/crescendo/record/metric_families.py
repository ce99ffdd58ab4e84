"""How are numbers written so that Prometheus and others can read them?

The OpenMetrics text format, version 1.0.0. Names and labels are escaped; a number that is not finite is left out.
"""

import math
import re
from collections.abc import Iterable

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


class MetricFamily:
    """One metric with its samples."""

    def __init__(self, name: str, kind: str, about: str) -> None:
        self.name, self.kind, self.about = _NOT_IN_NAMES.sub("_", name), kind, about
        self.samples: list[tuple[dict[str, str], float]] = []

    def add(self, value: float | None, **labels: str) -> None:
        if value is not None and math.isfinite(value):
            self.samples.append((labels, value))

    @property
    def lines(self) -> list[str]:
        suffix = "_total" if self.kind == "counter" else ""
        head = [f"# TYPE {self.name} {self.kind}", f"# HELP {self.name} {_escaped(self.about)}"]
        return head + [f"{self.name}{suffix}{_labels(labels)} {value:.10g}" for labels, value in self.samples]


def exposition(families: Iterable[MetricFamily]) -> str:
    """The text of all families that have samples."""
    merged: dict[str, MetricFamily] = {}
    for family in families:
        if family.name in merged:
            merged[family.name].samples += family.samples
        else:
            merged[family.name] = family
    lines = [line for family in merged.values() if family.samples for line in family.lines]
    return "\n".join([*lines, "# EOF\n"])


def _labels(labels: dict[str, str]) -> str:
    inner = ",".join(f'{_NOT_IN_NAMES.sub("_", name)}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
