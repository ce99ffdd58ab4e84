"""The text of the page."""

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from crescendo.model.errors import ConfigError
from crescendo.model.units import format_ns
from crescendo.record.summary import SUMMARY, TABLES_DIR, read_summary, write_summary
from crescendo.report.page import render_report, script_json, write_report
from report_samples import LOST_PEER, SAMPLES, Sample, write_sample, write_table


def _text(html: str) -> str:
    """The visible text of the page, without scripts, styles and tags."""
    html = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def _section(html: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', html, flags=re.DOTALL)
    assert found
    return _text(found[0])


@pytest.fixture(scope="session")
def pages(reports: dict[str, Path]) -> dict[str, str]:
    return {name: path.read_text(encoding="utf-8") for name, path in reports.items()}


def test_the_report_is_the_only_file_written(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["empty"])
    before = set(run_dir.iterdir())
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    assert set(run_dir.iterdir()) - before == {path}


def test_rendering_twice_gives_the_same_bytes(reports: dict[str, Path], pages: dict[str, str]) -> None:
    assert render_report(reports["failing"].parent) == pages["failing"]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_links_nothing_external_and_is_small_enough_to_mail(name: str, pages: dict[str, str]) -> None:
    references = re.findall(r'(?:src|href|action|data)=["\']([^"\']*)', pages[name])
    assert references
    assert all(reference.startswith("#") for reference in references)
    assert "default-src 'none'" in pages[name]
    assert len(pages[name]) < 2_500_000


def test_data_in_a_script_can_neither_end_it_nor_open_a_comment() -> None:
    value = {"</script>": ["<!--", "<script>", "&lt;", "\u2028 é", None, 1.5]}
    text = str(script_json(value))
    assert re.search(r"[<>&\u2028]", text) is None
    assert json.loads(text) == value


def test_numbers_that_json_cannot_represent_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        script_json([float("nan")])


def test_the_headline_matches_the_summary(reports: dict[str, Path], pages: dict[str, str]) -> None:
    latency = read_summary(reports["passing"].parent).latency_of("response")
    assert latency is not None
    top = _section(pages["passing"], "verdict")
    p50, p99 = latency.percentiles_ns["p50"], latency.percentiles_ns["p99"]
    assert p50 is not None
    assert p99 is not None
    for expected in (
        "pass",
        "5,000 msg/s",
        "100.0 % of 5,000 offered",
        format_ns(p50),
        format_ns(p99),
        "12 %",
        "0 · 0 · 0",
    ):
        assert expected in top


def test_a_run_that_lost_acknowledged_messages_has_no_performance_headline(pages: dict[str, str]) -> None:
    top = _section(pages["failing"], "verdict")
    assert "360 acknowledged messages lost" in top
    assert "360 · 6 · 0" in top
    assert "Sustained" not in top
    assert "Response p50" not in top


def test_an_invalid_run_names_the_peer_and_claims_nothing(pages: dict[str, str]) -> None:
    top = _section(pages["invalid"], "verdict")
    assert LOST_PEER in top
    assert "does not support claiming" in top
    assert "no heartbeat for 6 s" in _section(pages["invalid"], "generator")


def test_an_unbounded_run_shows_transfer_and_never_response(pages: dict[str, str]) -> None:
    top = _section(pages["unbounded"], "verdict")
    assert "Transfer p99" in top
    assert "Response" not in top
    assert "not calibrated" in top
    assert "17 transfer samples at or below zero" in _section(pages["unbounded"], "histogram")


def test_an_empty_run_says_so_where_charts_would_be(pages: dict[str, str]) -> None:
    assert "No message was sent or received" in _section(pages["empty"], "rate")
    assert "nothing was measured" in _section(pages["empty"], "verdict")
    assert len(pages["empty"]) < 100_000  # no chart, no library


def test_a_percentile_with_too_few_samples_is_withheld_and_explained(pages: dict[str, str]) -> None:
    table = _section(pages["passing"], "latencies")
    warm_up = re.search(r"warm-up response 10,000 (.*?) measure response", table)
    assert warm_up
    assert warm_up[1].count("withheld") == 2  # p99.9 and p99.99 of ten thousand samples
    assert "fewer than 10 samples lie beyond it" in table


def test_the_ledger_names_the_exact_ranges_in_order_and_counts_the_rest(pages: dict[str, str]) -> None:
    ledger = _section(pages["failing"], "ledger")
    assert "Lost: 62 ranges, the first 50 shown" in ledger
    assert "0 · sender-0 4210 – 4388 179" in ledger
    assert "3 · sender-1 77 1" in ledger
    assert "4700 – 4702" in ledger  # the fiftieth
    assert "4800 – 4802" not in ledger
    assert "Duplicated: 1 range" in ledger
    assert "2 · sender-0 900 – 905 6" in ledger


def test_the_environment_lists_what_a_repeat_needs(pages: dict[str, str]) -> None:
    environment = _section(pages["passing"], "environment")
    for expected in (
        "lab-07",
        "AMD EPYC 7763",
        "33.5 GB",
        "pyspark 4.3.0",
        "2030-01-02 03:04:05 UTC",
        "4.5 bytes per message",
    ):
        assert expected in environment
    assert "address: queue://perf" in environment


def test_a_run_that_was_not_analysed_is_refused_with_the_cure(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    (run_dir / SUMMARY).unlink()
    with pytest.raises(ConfigError, match="crescendo analyze"):
        render_report(run_dir)


def test_a_damaged_table_is_refused_by_name(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    (run_dir / TABLES_DIR / "throughput" / "part-0.parquet").write_bytes(b"PAR1 no longer")
    with pytest.raises(ConfigError, match="analyse the run again"):
        render_report(run_dir)


def test_missing_tables_leave_the_verdict_readable(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    shutil.rmtree(run_dir / TABLES_DIR)
    page = render_report(run_dir)
    assert "5,000 msg/s" in _section(page, "verdict")
    assert "No message arrived" in _section(page, "latency")


def test_long_lists_are_folded(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", Sample("many"))
    summary = read_summary(run_dir)
    senders = [row for row in summary.ledger if row.scope == "sender"]
    many = [msgspec.structs.replace(senders[0], sender=number) for number in range(40)]
    write_summary(run_dir, msgspec.structs.replace(summary, ledger=[summary.total, *many]))
    assert "<summary>By sender (40)</summary>" in render_report(run_dir)
    assert "<h3>By sender</h3>" in render_report(write_sample(run_dir, Sample("few")))


def test_a_day_long_run_makes_no_larger_page_than_a_short_one(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    row = {"role": "sender", "connection": 0, "messages": 10, "bytes": 2560}
    write_table(run_dir, "throughput", [row | {"second": second} for second in range(86_400)])
    page = render_report(run_dir)
    assert "Each point covers 48 s." in _section(page, "rate")
    figures = re.search(r'id="figures">(.*?)</script>', page)
    assert figures
    sent = next(trace for trace in json.loads(figures[1])["rate"]["data"] if trace["name"] == "sent")
    assert len(sent["y"]) == 1_800
    assert set(sent["y"]) == {10}
