"""Did this run pass, did it fail, or is it invalid?

Combines each check's value, its bound and the doubts about its evidence. The rule for the three outcomes, and which
failures are proven despite doubts, is in `model.verdict`.
"""

from crescendo.model.metrics import Metric
from crescendo.model.verdict import Check, Verdict, judge, judge_check, stopped_check
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.rules import ValidityFinding
from crescendo.pipeline.verdict.validity import LOAD_WAS_SENT, findings
from crescendo.record.summary import Validity


def verdict_of(evidence: Evidence) -> tuple[list[Validity], Verdict]:
    """The validity list and the verdict."""
    found = findings(evidence)
    validity = [finding.validity for finding in found]
    checks = [_check(metric, evidence, found) for metric in evidence.metrics]
    if (end := evidence.manifest.exceeded) is not None:
        checks.append(stopped_check(end.metric, end.value_ns, end.limit_ns, end.peer))
    doubts = [item.detail for item in validity if item.name == LOAD_WAS_SENT and not item.holds]
    if evidence.aggregates is not None and not checks:
        doubts.append("nothing to judge: the source kept no messages, and no check asks for what it did keep")
    return validity, judge(checks, doubts)


def _check(metric: Metric, evidence: Evidence, found: list[ValidityFinding]) -> Check:
    bound = evidence.checks[metric.name]
    unmeasured = evidence.unmeasured(metric, bound)
    reasons = [unmeasured] if unmeasured else []
    for finding in found:
        reasons += finding.doubts.get(metric.name, [])
    return judge_check(metric.name, bound, evidence.value_of(metric), offered=evidence.rate.offered, reasons=reasons)
