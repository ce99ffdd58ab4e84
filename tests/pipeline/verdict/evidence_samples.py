"""Evidence of small runs, sound unless a keyword says otherwise."""

from typing import Any

from crescendo.model.experiment_file import recorded_experiment
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.verdict import Verdict
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.record.manifest import Clock, Manifest, PeerRecord, State
from crescendo.record.summary import Latency, Ledger, Rate, Validity

MS = 1_000_000
ORDER = [
    "load was sent", "recording complete", "every part intact", "every peer finished", "generator kept up",
    "clock bound", "enough samples", "destination was empty",
]  # fmt: skip
ONLY_WHERE_THEY_APPLY = [
    "steady state", "every receiver of a topic got its own copy", "drain was long enough",
    "clients accounted for their messages",
]  # fmt: skip


def peer(name: str, ended: str = "finished", **statistics: float) -> PeerRecord:
    role, reason = name.split("-", maxsplit=1)[0], "no heartbeat" if ended == "lost" else ""
    return PeerRecord(name, role, "here", 1, ended, reason, PeerStatistics(**statistics))


SENDER = peer("sender-0", lateness_p99_ns=0.4 * MS, blocked_share=0.2)
RECEIVER = peer("receiver-0", busy_share=0.3)


def ledger(**counts: int) -> Ledger:
    fields = dict.fromkeys(Ledger.__struct_fields__[3:], 0)
    return Ledger("total", None, None, **(fields | {"sent": 1000, "owed": 1000, "delivered": 1000} | counts))


def evidence(
    checks: dict[str, Any] | None = None,
    *,
    rate: float = 1000.0,
    sustained: float = 1000.0,
    counts: dict[str, int] | None = None,
    p99_ns: int | None = 10 * MS,
    kinds: tuple[str, ...] = ("response", "transfer", "settle"),
    damaged: dict[str, str] | None = None,
    **manifest: Any,
) -> Evidence:
    document: dict[str, Any] = {"name": "e", "workload": [{"rate": rate}]}
    if checks is not None:
        document["checks"] = checks
    experiment = recorded_experiment(document, "e")
    fields: dict[str, Any] = {"state": State.SEALED, "clocks": [Clock("here", 0)], "peers": [SENDER, RECEIVER]}
    return Evidence(
        manifest=Manifest(run="r", tag=1, experiment=document, command=[], started_ns=0, **(fields | manifest)),
        experiment=experiment,
        damaged=damaged or {},
        unlisted=0,
        total=ledger(**(counts or {})),
        rate=Rate(rate, rate, sustained, 10**10, 0.0),
        latency={
            kind: Latency("measure", kind, 1000, 1, 20 * MS, 2.0 * MS, 0, {"p50": MS, "p99": p99_ns, "p99.9": None})
            for kind in kinds
        },
    )


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {check.metric: check.outcome.value for check in verdict.checks}


def item(validity: list[Validity], name: str) -> Validity:
    return next(entry for entry in validity if entry.name == name)
