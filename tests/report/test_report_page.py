"""The text of the page."""

import html
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crescendo.cli.terminal import verdict_line
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.experiment_file import experiment_from
from crescendo.model.experiment_parts import System
from crescendo.model.units import format_ns
from crescendo.model.verdict import Verdict
from crescendo.record.manifest import read_manifest, write_manifest
from crescendo.record.summary import SUMMARY, TABLES_DIR, Validity, read_summary, write_summary
from crescendo.report.document import script_json
from crescendo.report.glossary import MEANINGS, explain_terms
from crescendo.report.page import render_report, write_report
from crescendo.report.sections.subject import subject
from report_samples import LOST_PEER, SAMPLES, Sample, write_sample, write_table

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"


def _text(page: str) -> str:
    """The visible text of the page, without scripts, styles and tags."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    page = re.sub(r"</?abbr[^>]*>", "", page)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def _section(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', page, flags=re.DOTALL)
    assert found
    return _text(found[0])


def _figures(page: str) -> dict[str, Any]:
    found = re.search(r'id="figures">(.*?)</script>', page)
    assert found
    drawn: dict[str, Any] = json.loads(found[1])
    return drawn


@pytest.fixture(scope="session")
def pages(reports: dict[str, Path]) -> dict[str, str]:
    return {name: path.read_text(encoding="utf-8") for name, path in reports.items()}


def test_the_report_is_the_only_file_written(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["empty"])
    before = set(run_dir.iterdir())
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    assert set(run_dir.iterdir()) - before == {path}


def test_a_page_that_cannot_be_written_is_one_sentence_and_the_recording_stays(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "a run", SAMPLES["passing"])
    (run_dir / "report.html" / "in-the-way").mkdir(parents=True)
    before = sorted(path for path in run_dir.rglob("*"))
    sentence = f"report.html was not written: Is a directory; the recording is kept; run: crescendo report '{run_dir}'"
    with pytest.raises(LostError, match=f"{re.escape(sentence)}$"):
        write_report(run_dir)
    assert sorted(path for path in run_dir.rglob("*")) == before


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
        "0 · 0 · 0",
    ):
        assert expected in top
    assert "12 % of this machine's calibrated ceiling" in html.unescape(_section(pages["passing"], "generator"))


def test_the_page_opens_with_what_was_measured(pages: dict[str, str], tmp_path: Path) -> None:
    header = _text(pages["passing"].split("<header>")[1].split("</header>")[0])
    assert (
        "The built-in relay 0.1.0: 5 senders → queue://perf → 5 receivers, AMQP 1.0, 256 B, 5,000 msg/s, at least once;"
        " on lab-07 (8 cores, AMD EPYC 7763, 33.5 GB)."
    ) in header
    assert "as fast as possible" in pages["unbounded"]
    groups = [{"name": "orders", "rate": 10}, {"name": "prices", "address": "topic://p", "settle": "exactly-once"}]
    experiment = experiment_from({"name": "x", "workload": groups, "profile": {"kind": "sine", "period": "4s"}})
    manifest = read_manifest(write_sample(tmp_path / "run", SAMPLES["passing"]))
    url = msgspec.structs.replace(experiment, system=System(url="amqp://me:secret@there"))
    two = subject(msgspec.structs.replace(manifest, system={}), url)
    assert two.sentence.startswith("A system at amqp://me:")
    assert "secret" not in two.sentence
    assert "2 groups of senders and receivers, rate shaped by a profile (sine); on lab-07" in two.sentence
    assert two.groups[1] == "prices: 1 sender → topic://p → 1 receiver, AMQP 1.0, 256 B, 1,000 msg/s, exactly once"
    unknown = subject(msgspec.structs.replace(manifest, system={"kind": "imported", "format": "perftest"}), experiment)
    assert unknown.sentence.startswith("Results of another tool (perftest)")


def test_the_bounds_of_the_checks_are_drawn_where_they_apply(pages: dict[str, str]) -> None:
    drawn = _figures(pages["passing"])
    (rate,) = [trace for trace in drawn["rate"]["data"] if trace["name"].startswith("bound")]
    assert (rate["x"], rate["y"]) == ([2.0, 12.0], [4_950.0, 4_950.0])  # only in the measure phase
    (latency,) = [trace for trace in drawn["latency"]["data"] if trace["name"].startswith("bound")]
    assert latency["name"] == "bound p99 ≤ 200ms"
    assert latency["y"] == [0.2, 0.2]
    assert drawn["latency"]["layout"]["yaxis"]["range"][1] > math.log10(0.2)  # in sight
    (mark,) = [trace for trace in drawn["spectrum"]["data"] if trace["name"].startswith("bound")]
    assert (mark["x"], mark["y"]) == ([2.0], [0.2])
    assert not [trace for trace in _figures(pages["unbounded"])["rate"]["data"] if trace["name"].startswith("bound")]


def test_the_bound_of_a_group_is_drawn_with_its_name(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    summary = read_summary(run_dir)
    checks = [msgspec.structs.replace(check, metric=f"orders.{check.metric}") for check in summary.verdict.checks]
    write_summary(run_dir, msgspec.structs.replace(summary, verdict=Verdict(summary.verdict.outcome, checks)))
    drawn = _figures(render_report(run_dir))
    for chart, name in (("latency", "bound orders: p99 ≤ 200ms"), ("spectrum", "bound orders: response p99 ≤ 200ms")):
        assert name in [trace["name"] for trace in drawn[chart]["data"]]


def test_the_offered_rate_follows_the_profile_until_the_last_message_is_due(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    manifest = read_manifest(run_dir)
    steps = {"kind": "steps", "steps": [{"factor": 0.5, "lasts": "3s"}, {"factor": 1.5, "lasts": "1s"}]}
    write_manifest(run_dir, msgspec.structs.replace(manifest, experiment=manifest.experiment | {"profile": steps}))
    (offered,) = [trace for trace in _figures(render_report(run_dir))["rate"]["data"] if trace["name"] == "offered"]
    assert offered["y"] == [2_500.0] * 3 + [7_500.0] * 9


def test_words_of_the_glossary_mean_the_same_on_the_page_and_in_the_docs(pages: dict[str, str]) -> None:
    listed = dict(re.findall(r"^\| ([^|`]+?) \| (.+) \|$", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert {word: listed.get(word) for word in MEANINGS} == MEANINGS
    explained = dict(re.findall(r'<abbr title="([^"]+)">([^<]+)</abbr>', pages["failing"]))
    words = {word.lower() for word in explained.values()}
    assert {"owed", "stray", "unrecorded", "response", "p99", "undelivered", "lost acked"} <= words
    assert explain_terms("<b> lateness & Lateness in p99.9") == (
        f'&lt;b&gt; <abbr title="{MEANINGS["lateness"]}">lateness</abbr> &amp; Lateness in '
        f'<abbr title="{MEANINGS["p99.9"]}">p99.9</abbr>'
    )


def test_a_condition_that_no_check_depends_on_has_a_mark_of_its_own(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    summary = read_summary(run_dir)
    drifting = Validity("steady state", False, "the p99 falls", noted=True)
    write_summary(run_dir, msgspec.structs.replace(summary, validity=[*summary.validity, drifting]))
    page = render_report(run_dir)
    validity = _section(page, "validity")
    assert validity.startswith("Validity Conditions that must hold before the numbers mean anything. ! steady state")
    assert 'class="noted"' in page
    assert "✕" not in validity


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
    assert "calibrate" not in top
    assert "crescendo calibrate measures its ceiling" in _section(pages["unbounded"], "generator")
    assert "at most 180 µs apart" in _section(pages["unbounded"], "generator")
    assert "17 transfer samples at or below zero" in _section(pages["unbounded"], "histogram")


def test_an_empty_run_says_so_where_charts_would_be(pages: dict[str, str]) -> None:
    assert "No message was sent or received" in _section(pages["empty"], "rate")
    assert "nothing was measured" in _section(pages["empty"], "verdict")
    assert len(pages["empty"]) < 100_000  # no chart, no library


def test_a_percentile_with_too_few_samples_is_withheld_and_explained(pages: dict[str, str]) -> None:
    table = _section(pages["passing"], "latencies")
    assert table.index("measure response") < table.index("warm-up response")
    warm_up = re.search(r"warm-up response 10,000 (.*?) warm-up", table)
    assert warm_up
    assert warm_up[1].count("too few") == 2  # p99.9 and p99.99 of ten thousand samples
    assert "shown if at least 10 samples lie beyond it" in table


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


def test_remarks_stand_beside_the_verdict_and_own_delay_beside_its_numbers(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    summary = read_summary(run_dir)
    response = summary.latency_of("response")
    assert response is not None
    p99_ns = response.percentiles_ns["p99"]
    assert p99_ns is not None
    less = msgspec.structs.replace(response, percentiles_ns={**response.percentiles_ns, "p99": p99_ns // 2})
    remarks = ["own delay up to 2 ms in response_p99 4 ms", "7 messages were still arriving when the drain ended"]
    ledger = [msgspec.structs.replace(row, undelivered=7) for row in summary.ledger]
    changed = msgspec.structs.replace(summary, without_own_delay=[less], remarks=remarks, ledger=ledger)
    write_summary(run_dir, changed)
    page = render_report(run_dir)
    verdict = _section(page, "verdict")
    assert "pass , with remarks All 3 checks passed on sound evidence." in verdict
    assert all(remark in verdict for remark in remarks)
    assert f"from the intended time; own delay up to {format_ns(p99_ns - p99_ns // 2)}" in verdict
    assert "owed; 7 undelivered" in verdict
    assert "response without own delay" in _section(page, "latencies")
    assert "undelivered" in _section(page, "ledger")
    line = verdict_line(changed)
    assert line.startswith("VERDICT pass, with remarks · ")
    assert verdict_line(summary).startswith("VERDICT pass · ")
    assert " · ".join(remarks) in line
