"""What has this broker done so far, in numbers?

Counters that only rise, and gauges that are read when the metrics are requested. `openmetrics` writes them as text.
Keeps no history and judges nothing.
"""

from collections import Counter
from collections.abc import Callable

TIERS = ("receive", "queue", "pool", "database", "send", "wait")
PREFIX = "crescendo_mlmq"
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_NS = 1e9


class Metrics:
    """One broker's counters. Written by one thread, so no lock."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # kind, outcome
        self.shed = 0
        self.refused_clients = 0
        self.broken_clients = 0  # closed by us: invalid frames, or too slow a reader
        self.clients_seen = 0
        self.statements: Counter[str] = Counter()
        self.database_ns: Counter[str] = Counter()  # by kind, each statement once
        self.database_failures = 0
        self.tier_ns: Counter[str] = Counter()  # summed over requests
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A value that goes up and down, read when the metrics are requested."""
        self.gauges[name] = (help_text, read)

    def openmetrics(self) -> str:
        lines: list[str] = []
        _counter(
            lines,
            "requests",
            "Requests that were answered.",
            {f'kind="{kind}",outcome="{outcome}"': n for (kind, outcome), n in self.requests.items()},
        )
        for name, help_text, value in (
            ("shed", "Requests answered overloaded because too many waited.", self.shed),
            ("clients_seen", "Connections taken from clients.", self.clients_seen),
            ("clients_refused", "Connections refused because there were too many.", self.refused_clients),
            ("clients_broken", "Connections closed for garbage or for not reading.", self.broken_clients),
            ("database_failures", "Statements that failed for want of the database.", self.database_failures),
        ):
            _counter(lines, name, help_text, {"": value})
        kinds = sorted(self.statements)
        _counter(
            lines, "statements", "Statements sent to the database.", {f'kind="{k}"': self.statements[k] for k in kinds}
        )
        _counter(
            lines,
            "database_seconds",
            "Time in the database, each statement once.",
            {f'kind="{kind}"': self.database_ns[kind] / _NS for kind in kinds},
            unit="seconds",
        )
        _counter(
            lines,
            "tier_seconds",
            "Time of requests by tier, each request for itself.",
            {f'tier="{tier}"': self.tier_ns[tier] / _NS for tier in TIERS},
            unit="seconds",
        )
        for name, (help_text, read) in self.gauges.items():
            full = f"{PREFIX}_{name}"
            lines += [f"# TYPE {full} gauge", f"# HELP {full} {help_text}", f"{full} {_number(read())}"]
        return "\n".join([*lines, "# EOF", ""])


def _counter(lines: list[str], name: str, help_text: str, values: dict[str, float], unit: str = "") -> None:
    full = f"{PREFIX}_{name}"
    lines += [f"# TYPE {full} counter"]
    if unit:
        lines += [f"# UNIT {full} {unit}"]
    lines += [f"# HELP {full} {help_text}"]
    lines += [f"{full}_total{{{labels}}} {_number(n)}" if labels else f"{full}_total {_number(n)}"
              for labels, n in values.items()]  # fmt: skip


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9f}"
