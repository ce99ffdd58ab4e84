"""How does a CI server learn what a gate found? JUnit XML, and Markdown for a pull request. Judges nothing."""

from xml.etree import ElementTree

from crescendo.history.regression_gate import GateMetric, GateResult, format_gate_value
from crescendo.pipeline.compare.outcomes import Change, format_change

_MARKS = {
    Change.BETTER: "✓ better",
    Change.SAME: "= no difference",
    Change.WORSE: "✕ worse",
    Change.UNCLEAR: "? cannot say",
}


def junit_xml(result: GateResult) -> str:
    """One test case per metric: worse is a failure, cannot say an error."""
    worse = sum(each.outcome is Change.WORSE for each in result.metrics)
    unclear = sum(each.outcome is Change.UNCLEAR for each in result.metrics)
    suite = ElementTree.Element(
        "testsuite", name="crescendo gate", tests=str(len(result.metrics)), failures=str(worse), errors=str(unclear)
    )
    for each in result.metrics:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"crescendo.gate.{result.fingerprint}", name=each.metric
        )
        if each.outcome in {Change.WORSE, Change.UNCLEAR}:
            kind = "failure" if each.outcome is Change.WORSE else "error"
            ElementTree.SubElement(case, kind, message=f"{each.outcome}: {each.reason}").text = "\n".join(result.notes)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def markdown_summary(result: GateResult) -> str:
    """A table for a pull request."""
    lines = [
        f"**Performance gate: {result.outcome}** ({len(result.runs)} runs, baseline of {len(result.baseline)}; "
        f"changes up to {result.threshold:.1%} do not count)",
        "",
        "| metric | baseline | now | change | outcome | |",
        "|---|---|---|---|---|---|",
        *(_row(each) for each in result.metrics),
    ]
    if result.notes:
        lines += ["", *(f"- {_escaped(note)}" for note in result.notes)]
    return "\n".join(lines) + "\n"


def _row(each: GateMetric) -> str:
    change = "–" if each.change is None else format_change(each.change)
    cells = [
        f"`{each.metric}`", format_gate_value(each.metric, each.baseline), format_gate_value(each.metric, each.run),
        change, _MARKS[each.outcome], _escaped(each.reason),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
