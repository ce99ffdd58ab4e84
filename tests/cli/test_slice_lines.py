"""What does the terminal say about the groups of a run?"""

from msgspec import structs

from crescendo.cli.terminal import slice_lines
from crescendo.model.verdict import Outcome, Verdict
from crescendo.record.summary import Latency, Ledger, Rate, SliceResult, Summary

MS = 1_000_000


def result(
    scope: str, name: str, rate: float, p99_ns: int | None, lost: int = 0, kind: str = "response"
) -> SliceResult:
    latency = Latency("measure", kind, 1000, 1, 9 * MS, 2.0, 0, {"p50": MS, "p99": p99_ns})
    counts = dict.fromkeys(Ledger.__struct_fields__[3:], 0) | {"lost_unacknowledged": lost}
    return SliceResult(scope, name, Rate(rate, rate, rate, 10**9, 0.0), [latency], Ledger(scope, None, None, **counts))


def summary(*slices: SliceResult) -> Summary:
    first = slices[0]
    verdict = Verdict(Outcome.PASS, [])
    return Summary("r", "sealed", verdict, [], first.rate, first.latency, [first.ledger], 0, slices=list(slices))


GROUPS = [result("group", "orders", 1500, 2 * MS, 3), result("group", "events", 20, None, kind="transfer")]


def test_every_group_has_its_line() -> None:
    assert slice_lines(summary(*GROUPS)) == [
        "group   msg/s   p50                p99  lost",
        "orders  1,500  1 ms               2 ms     3",
        "events     20  1 ms  withheld transfer     0",
    ]


def test_a_division_that_says_nothing_new_is_not_shown() -> None:
    assert slice_lines(summary(GROUPS[0])) == []
    named = {"orders": "queue://orders", "events": "topic://events"}
    destinations = [
        structs.replace(
            each, scope="destination", name=named[each.name], ledger=structs.replace(each.ledger, scope="x")
        )
        for each in GROUPS
    ]
    assert list(summary(*GROUPS, *destinations).divisions) == ["group"]
    other = [destinations[0], result("destination", "queue://b", 10, MS), result("destination", "queue://c", 10, MS)]
    assert list(summary(*GROUPS, *other).divisions) == ["group", "destination"]


def test_many_slices_do_not_hide_the_verdict() -> None:
    lines = slice_lines(summary(*(result("group", f"g{number}", 1, MS) for number in range(30))))
    assert len(lines) == 12
    assert lines[-1] == "… 20 more in the report and in summary.json"
