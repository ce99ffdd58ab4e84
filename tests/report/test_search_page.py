"""The page of a search: a function of its result."""

import json
import re
from pathlib import Path
from typing import Any

from crescendo.model.search import SearchAnswer
from crescendo.model.verdict import Outcome
from crescendo.record.search_result import SearchResult, Try, read_search_result, write_search_result
from crescendo.report.search_page import SEARCH_PAGE, render_search, write_search_page
from report_samples import SAMPLES, write_sample

MS = 1_000_000


def tried(rate: float, outcome: Outcome, p99_ms: int, reason: str = "", run: str = "") -> Try:
    percentiles = {"p50": p99_ms * MS // 4, "p99": p99_ms * MS, "p99.99": None}
    return Try(rate, outcome, run, [reason] if reason else [], min(rate, 2100.0), 3.0, "response", percentiles)


TRIES = [
    tried(1000, Outcome.PASS, 2),
    tried(2000, Outcome.PASS, 8),
    tried(2000, Outcome.PASS, 12),
    tried(4000, Outcome.FAIL, 900, "response_p99: 900 ms, wanted <= 50ms", run="a <run>"),
    tried(2000, Outcome.INVALID, 70, "own delay could explain it"),
    Try(2828, Outcome.INVALID, "", ["lost sender-0"]),
]
LIMITS = {"lost": "== 0", "backlog": "steady", "response_p99": "<= 50ms"}
FOUND = SearchResult("hunt", LIMITS, "2 of 3", SearchAnswer(2000, 4000, True, "both ends are confirmed"), TRIES)


def figures(page: str) -> dict[str, Any]:
    found = re.search(r'id="figures">(.*?)</script>', page)
    assert found
    drawn: dict[str, Any] = json.loads(found[1])
    return drawn


def test_rate_is_drawn_against_latency_with_the_bracket_and_the_limit() -> None:
    chart = figures(render_search(FOUND))["tradeoff"]
    traces = {trace["name"]: trace for trace in chart["data"]}
    assert (traces["p99"]["x"], traces["p99"]["y"]) == (
        [1000, 2000, 4000],
        [0.002, 0.01, 0.9],
    )  # medians of valid tries
    assert (traces["fail"]["x"], traces["fail"]["y"]) == ([4000], [0.9])
    assert traces["limit p99 ≤ 50ms"]["y"] == [0.05, 0.05]
    (bracket,) = chart["layout"]["shapes"]
    assert (bracket["name"], bracket["x0"], bracket["x1"]) == ("bracket", 2000, 4000)
    order = figures(render_search(FOUND))["order"]
    assert order["data"][0]["y"] == [each.rate for each in TRIES]


def test_the_answer_comes_first_and_every_try_has_its_reason_and_its_report() -> None:
    page = render_search(FOUND)
    assert "between 2,000 and 4,000 msg/s (100.0 % apart); both ends are confirmed by 2 of 3 tries." in page
    assert "900 ms, wanted &lt;= 50ms" in page
    assert re.findall(r'<a href="([^#][^"]*)"', page) == ["a%20%3Crun%3E/report.html"]
    assert 'class="verdict pass"' in page


def test_a_search_without_an_answer_claims_none() -> None:
    ended = SearchResult("hunt", LIMITS, "2 of 3", SearchAnswer(1000, None, False, "interrupted"), TRIES[:1])
    page = render_search(ended)
    assert "No answer: interrupted. 1,000 msg/s passes." in page
    assert 'class="verdict invalid"' in page
    under = SearchResult(
        "hunt", LIMITS, "2 of 3", SearchAnswer(None, 1000, True, "even the lowest rate fails"), TRIES[3:4]
    )
    assert 'class="verdict fail"' in render_search(under)
    nothing = SearchResult("hunt", LIMITS, "2 of 3", None, TRIES[5:])
    assert "No try measured enough messages" in render_search(nothing)


def test_the_page_lies_next_to_the_result_and_says_what_was_measured(tmp_path: Path) -> None:
    write_sample(tmp_path / "try-1", SAMPLES["passing"])
    write_search_result(
        tmp_path, SearchResult("hunt", LIMITS, "1 of 1", None, [tried(1000, Outcome.PASS, 2, run="try-1")])
    )
    assert read_search_result(tmp_path).tries[0].percentiles_ns["p99"] == 2 * MS
    path = write_search_page(tmp_path)
    assert path == tmp_path / SEARCH_PAGE
    page = path.read_text(encoding="utf-8")
    assert "5 senders → queue://perf → 5 receivers, AMQP 1.0, 256 B, at least once" in page
