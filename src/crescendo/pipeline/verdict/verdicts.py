"""Did this run pass, did it fail, or is it invalid?

Combines each check's value, its bound and the doubts about its evidence. The rule for the three outcomes, and which
failures are proven despite doubts, is in `model.verdict`.
"""

from collections.abc import Sequence

from msgspec import structs

from crescendo.model.metrics import Metric
from crescendo.model.verdict import Check, Verdict, judge, judge_check, stopped_check
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.rules import ValidityFinding
from crescendo.pipeline.verdict.validity import LOAD_WAS_SENT, RULES, findings
from crescendo.record.summary import Validity


def verdict_of(evidence: Evidence, slices: Sequence[Evidence] = ()) -> tuple[list[Validity], Verdict]:
    """The validity list and the verdict. Checks of slices are judged by the same rules, on their own evidence."""
    found = findings(evidence)
    checks = [_check(metric, evidence, found) for metric in evidence.metrics]
    of_slices: list[tuple[str, Validity]] = []
    for each in slices:
        if each.run_slice is not None and each.checks:
            of_slice = findings(each)
            of_slices += [(each.run_slice.name, finding.validity) for finding in of_slice]
            checks += [_in_slice(each.run_slice.name, _check(metric, each, of_slice)) for metric in each.metrics]
    validity = _merged([finding.validity for finding in found], of_slices)
    order = list(evidence.experiment.effective_checks)
    checks.sort(key=lambda check: order.index(check.metric) if check.metric in order else len(order))
    if (end := evidence.manifest.exceeded) is not None:
        without_ns = end.value_ns if evidence.stopped_without_ns is None else evidence.stopped_without_ns
        checks.append(stopped_check(end.metric, end.value_ns, end.limit_ns, end.peer, without_ns))
    doubts = [item.detail for item in validity if item.name == LOAD_WAS_SENT and not item.holds]
    if evidence.aggregates is not None and not checks:
        doubts.append("nothing to judge: the source kept no messages, and no check asks for what it did keep")
    return validity, judge(checks, doubts)


def _in_slice(name: str, check: Check) -> Check:
    return structs.replace(check, metric=f"{name}.{check.metric}")


def _merged(run: list[Validity], of_slices: list[tuple[str, Validity]]) -> list[Validity]:
    """One list: an item holds if it does for the run and for every slice that a check names."""
    items = {item.name: item for item in run}
    for name, item in of_slices:
        known = items.get(item.name)
        named = f"{name}: {item.detail}"
        if known is None:
            items[item.name] = structs.replace(item, detail=named)
        elif not item.holds:
            items[item.name] = Validity(item.name, False, named if known.holds else f"{known.detail}; {named}")
    return [items[rule.name] for rule in RULES if rule.name in items]


def _check(metric: Metric, evidence: Evidence, found: list[ValidityFinding]) -> Check:
    bound = evidence.checks[metric.name]
    unmeasured = evidence.unmeasured(metric, bound)
    reasons = [unmeasured] if unmeasured else []
    for finding in found:
        reasons += finding.doubts.get(metric.name, [])
    return judge_check(metric.name, bound, evidence.value_of(metric), offered=evidence.rate.offered, reasons=reasons)
