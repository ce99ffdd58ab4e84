"""The page of a comparison: a function of what `compare` returns."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from crescendo.cli.compare import compare
from crescendo.model.errors import ConfigError
from crescendo.pipeline.compare.compare import Change, Compared, Comparison, Value
from crescendo.report.comparison_page import render_comparison, write_comparison
from crescendo.report.data.comparison_document import comparison_document

SAMPLES = Path(__file__).parents[1] / "samples" / "version-0.1"


def _value(value: float) -> Value:
    return Value(value, value * 0.97, value * 1.03)


def _metric(
    name: str, unit: str, sides: tuple[float, float], outcome: Change, change: tuple[float, float, float]
) -> Compared:
    return Compared(name, unit, _value(sides[0]), _value(sides[1]), outcome, "<b>why</b>", "repeats", *change)


WORSE = Comparison(
    ["runs/a-1", "runs/a-2"], ["runs/b-1"], 0.05, Change.WORSE,
    [
        _metric("rate", "msg/s", (5000, 5010), Change.SAME, (0.002, -0.004, 0.008)),
        _metric("response_p50", "ns", (1.2e6, 0.9e6), Change.BETTER, (-0.25, -0.31, -0.18)),
        _metric("response_p99", "ns", (8e6, 10.2e6), Change.WORSE, (0.27, 0.12, 0.44)),
        _metric("orders.response_p99.9", "ns", (2e7, 2.6e7), Change.UNCLEAR, (0.3, -0.9, 776123570.2)),
        Compared("lost", "share", Value(0.0), Value(0.0), Change.SAME, "nothing was lost"),
    ],
    ["a doubt"], ["a note"],
)  # fmt: skip


def test_the_page_says_what_is_worse_and_shows_both_sides_as_text() -> None:
    page = render_comparison(comparison_document(WORSE))
    text = " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"</?abbr[^>]*>", "", page.split("<main>")[1])).split())
    assert "1 of 5 metrics is worse: response p99 (+27.0 %)." in text
    assert "response p99 8 ms 7.76 ms to 8.24 ms 10.2 ms 9.89 ms to 10.5 ms +27.0 % +12.0 % to +44.0 % ✕ worse" in text
    assert "−90.0 % to ×1,000,000 or more" in text  # never eleven digits of per cent
    assert "a doubt" in text
    assert "&lt;b&gt;why&lt;/b&gt; (interval from repeats)" in text
    assert 'class="verdict fail"' in page


def test_the_chart_has_a_bar_for_every_change_and_none_without_an_interval() -> None:
    figures = re.search(r'id="figures">(.*?)</script>', render_comparison(comparison_document(WORSE)))
    assert figures
    chart = json.loads(figures[1])["changes"]
    worse = next(trace for trace in chart["data"] if trace["name"] == "worse")
    assert worse["x"] == [0.27]
    assert worse["error_x"]["arrayminus"] == pytest.approx([0.15])
    assert worse["error_x"]["array"] == pytest.approx([0.17])
    reach = chart["layout"]["xaxis"]["range"][1]
    unclear = next(trace for trace in chart["data"] if trace["name"] == "cannot say")
    assert unclear["x"][0] + unclear["error_x"]["array"][0] == pytest.approx(reach)
    assert sum(len(trace["x"]) for trace in chart["data"]) == 4
    shade = chart["layout"]["shapes"][0]
    assert (shade["x0"], shade["x1"]) == (-0.05, 0.05)


def test_the_same_page_comes_from_the_result_and_from_its_json() -> None:
    kept = msgspec.json.decode(msgspec.json.encode(WORSE))
    assert render_comparison(comparison_document(kept)) == render_comparison(comparison_document(WORSE))
    unknown = msgspec.structs.replace(comparison_document(WORSE), outcome="an outcome of later")
    assert 'class="verdict invalid"' in render_comparison(unknown)


def test_compare_writes_the_page_where_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "compared.html"
    sides = str(SAMPLES / "baseline"), str(SAMPLES / "run")
    compare(*sides, html=page)
    assert f"report  {page}" in capsys.readouterr().out
    assert "response p50" in re.sub(r"</?abbr[^>]*>", "", page.read_text(encoding="utf-8"))
    with pytest.raises(ConfigError, match="there is no directory"):
        compare(*sides, html=tmp_path / "none" / "x.html")


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_comparison(WORSE, tmp_path / "page.html")
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert list(tmp_path.iterdir()) == [path]
