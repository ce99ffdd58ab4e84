"""Are the files of Maestro imported completely? Every expected number is computed from the samples without our code."""

import csv
import gzip
import json
import struct
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from pyspark.sql import SparkSession

from crescendo.importers.job import ImportSummary
from crescendo.model.histogram import percentile
from crescendo.pipeline.job import analyze
from crescendo.pipeline.source.ingest import readable_recording
from imported_runs import SAMPLES, Run, rejected_lines, rows_of

FILES = SAMPLES / "maestro"
Maestro = tuple[Path, ImportSummary]


def seconds(path: Path) -> list[tuple[int, int, int]]:
    """Metadata, messages and microseconds of every record, unpacked with struct."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(struct.iter_unpack(">iqq", content[20:]))


def test_every_part_is_valid_for_a_reader(maestro: Maestro) -> None:
    recording = readable_recording(maestro[0])
    assert not recording.damaged
    assert {part.table for part in recording.parts} == {"rates", "histograms", "readings", "events"}
    journal = (maestro[0] / "journal" / "import.jsonl").read_text().splitlines()
    assert [json.loads(line)["sha256"] for line in journal] == [part.sha256 for part in recording.parts]


@pytest.mark.parametrize("name", ["sender.dat", "sender-0.dat.gz"])
def test_counts_of_each_second_are_those_of_the_file(maestro: Maestro, name: str) -> None:
    expected = seconds(FILES / name)
    query = "SELECT count(*), sum(messages), min(t_ns), max(t_ns) FROM rows WHERE peer = ?"
    found = rows_of(maestro[0], "rates", query, name)
    times_us = [us for _, _, us in expected]
    assert found == [(len(expected), sum(n for _, n, _ in expected), min(times_us) * 1000, max(times_us) * 1000)]
    roles = rows_of(maestro[0], "rates", "SELECT DISTINCT role FROM rows WHERE peer = ?", name)
    assert roles == [("sender",)]
    sources = {source.path.rsplit("/", 1)[-1]: source for source in maestro[1].sources}
    assert sources[name].records == len(expected)


@pytest.mark.parametrize(("name", "percent"), [("file-03.hdr", 99.0), ("file-03.hdr", 50.0), ("file-01.hdr", 90.0)])
def test_percentiles_of_a_latency_log_agree_with_the_library(maestro: Maestro, name: str, percent: float) -> None:
    merged = HdrHistogram(1, 86_400 * 10**6, 3)
    reader = HistogramLogReader(str(FILES / name), merged)
    starts = []
    while (interval := reader.get_next_interval_histogram()) is not None:
        merged.add(interval)
        starts.append(round(interval.get_start_time_stamp() * 1e6))
    reader.close()
    rows = rows_of(maestro[0], "histograms", "SELECT bucket, count, t_ns, kind FROM rows WHERE peer = ?", name)
    buckets, counts, times, kinds = (list(column) for column in zip(*rows, strict=True))
    assert sum(counts) == merged.get_total_count()
    assert set(kinds) == {"transfer"}
    assert sorted(set(times)) == pytest.approx(starts, abs=1e6)
    found_ns = percentile(np.array(buckets), np.array(counts), percent)
    # Our buckets are 1/256 wide, theirs 1/1000.
    assert found_ns == pytest.approx(merged.get_value_at_percentile(percent) * 1000, rel=1 / 256 + 1 / 1000)


@pytest.mark.parametrize(
    ("name", "entity", "column", "metric"),
    [
        ("heap.csv", "memory/heap", "Used", "used"),
        ("queues.csv", "queue/test.performance.queue.3", "MessagesAdded", "MessagesAdded"),
        ("general.csv", "router/Router.A", "IngressCount", "deliveriesIngress"),
        ("qdmemory.csv", "allocator/qd_buffer_t", "Total", "totalAllocFromHeap"),
        ("connections.csv", "connection/36", "Identity", "identity"),
    ],
)
def test_readings_are_the_cells_of_the_sheets(
    maestro: Maestro, name: str, entity: str, column: str, metric: str
) -> None:
    with (FILES / name).open() as file:
        cells = [
            row[column] for row in csv.DictReader(file) if row["Name"].lower() in {"", entity.split("/")[1].lower()}
        ]
    query = "SELECT value FROM rows WHERE entity = ? AND metric = ? ORDER BY t_ns"
    assert [value for (value,) in rows_of(maestro[0], "readings", query, entity, metric)] == [
        float(cell) for cell in cells
    ]
    assert cells


def test_the_times_of_sheets_are_read_as_utc(maestro: Maestro) -> None:
    with duckdb.connect() as engine:
        first = engine.execute("SELECT epoch_ns(TIMESTAMP '2018-03-21 10:03:01')").fetchall()
    assert rows_of(maestro[0], "readings", "SELECT min(t_ns) FROM rows WHERE entity = 'memory/heap'") == first


def test_texts_become_events_only_when_they_change(maestro: Maestro) -> None:
    texts = [
        json.loads(str(text))
        for (text,) in rows_of(maestro[0], "events", "SELECT detail FROM rows WHERE kind = 'texts'")
    ]
    modes = [
        values
        for entry in texts
        for entity, values in entry.items()
        if entity == "router/Router.A" and "mode" in values
    ]
    assert modes == [{"mode": "standalone"}]
    quoted = [values["properties"] for entry in texts for values in entry.values() if "properties" in values]
    assert [text.startswith("{product=QpidJMS, version=0.26.0") for text in quoted] == [True]


def test_properties_are_unescaped(maestro: Maestro) -> None:
    rows = rows_of(maestro[0], "events", "SELECT source, detail FROM rows WHERE kind = 'properties' ORDER BY source")
    found = {source: json.loads(str(detail)) for source, detail in rows}
    assert found["test.properties"]["brokerUri"] == "amqp://some/queue"
    assert found["test.properties"]["parallelCount"] == "3"
    assert found["inspector.properties"]["systemCpuCount"] == "4"


def test_the_recording_names_its_origin(maestro: Maestro) -> None:
    system = readable_recording(maestro[0]).manifest.system
    assert (system["kind"], system["format"]) == ("imported", "maestro")
    listed = system["configuration"]["sources"].splitlines()
    assert len(listed) == len(list(FILES.iterdir()))
    assert any("no messages" in caveat for caveat in system["caveats"])


def test_counts_and_histograms_can_be_analysed_and_claim_no_ledger(maestro: Maestro, spark: SparkSession) -> None:
    summary = analyze(maestro[0], spark, lambda _: None)
    assert summary.verdict.outcome.value == "invalid"
    assert "nothing to judge" in summary.verdict.reasons[0]
    ((samples,),) = rows_of(maestro[0], "histograms", "SELECT sum(count)::BIGINT FROM rows")
    assert [(row.kind, row.count) for row in summary.latency] == [("transfer", samples)]
    assert summary.total.sent == 0


SENT = (
    'eta;ata\n"2017-10-19 13:19:32.661300","2017-10-19 13:19:32.661400"\n'
    '"2017-10-19 13:19:32.661500","2017-10-19 13:19:32.66159"\n'  # 661 ms and 59 µs, unpadded
    "this is not a time\n"
    '"2017-10-19 13:19:32.661700","2017-10-19 13:19:32.661900"\n'
)
RECEIVED = (
    'eta;ata\n"2017-10-19 13:19:32.661400","2017-10-19 13:19:32.706649"\n'
    '"2017-10-19 13:19:32.66159","2017-10-19 13:19:32.706823"\n'
)
SECOND_NS = 1_508_419_172 * 10**9  # 2017-10-19 13:19:32 UTC


def test_messages_of_old_versions_become_messages(importing: Run, spark: SparkSession, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "senderd-rate.csv.gz").write_bytes(gzip.compress(SENT.encode()))
    # The end of the archive is missing: its rows are imported anyway, and the fault is reported.
    (reports / "receiverd-rate.csv.gz").write_bytes(gzip.compress(RECEIVED.encode())[:-8])
    (reports / "test.properties").write_text("messageSize=256\nbrokerUri=amqp\\://me\\:secret@host/queue\n")
    imported = importing("maestro", [reports], tmp_path / "run")
    assert rows_of(tmp_path / "run", "sent", "SELECT seq, intended_ns, sent_ns, size FROM rows ORDER BY seq") == [
        (0, SECOND_NS + 661_300_000, SECOND_NS + 661_400_000, 256),
        (1, SECOND_NS + 661_500_000, SECOND_NS + 661_059_000, 256),
        (2, SECOND_NS + 661_700_000, SECOND_NS + 661_900_000, 256),
    ]
    assert rows_of(tmp_path / "run", "received", "SELECT received_ns - sent_ns FROM rows ORDER BY arrival") == [
        (45_249_000,),
        (45_764_000,),
    ]
    rejected = rejected_lines(tmp_path / "run")
    assert [(Path(row["file"]).name, row["line"], row["text"]) for row in rejected] == [
        ("receiverd-rate.csv.gz", 4, ""),
        ("senderd-rate.csv.gz", 4, "this is not a time"),
    ]
    assert imported.rejected == 2
    assert "secret" not in str(rows_of(tmp_path / "run", "events", "SELECT detail FROM rows"))
    summary = analyze(tmp_path / "run", spark, lambda _: None)
    assert (summary.total.sent, summary.total.delivered, summary.total.lost) == (3, 2, 1)
    assert [(row.kind, row.count, row.min_ns) for row in summary.latency] == [("transfer", 2, 45_249_000)]


def test_incomplete_and_impossible_records_are_rejected(importing: Run, tmp_path: Path) -> None:
    header = b" maestro" + struct.pack(">iii", 1, 138, 2)
    records = [(0, 5, 10**15), (0, -3, 10**15), (0, 7, 0), (0, 2**40, 10**15 + 1)]
    content = header + b"".join(struct.pack(">iqq", *record) for record in records) + b"\x00\x01\x02"
    (tmp_path / "receiver.dat").write_bytes(content)
    imported = importing("maestro", [tmp_path / "receiver.dat"], tmp_path / "run")
    assert rows_of(tmp_path / "run", "rates", "SELECT role, messages FROM rows ORDER BY t_ns") == [
        ("receiver", 5),
        ("receiver", 2**40),
    ]
    rejected = rejected_lines(tmp_path / "run")
    assert [(row["line"], row["text"]) for row in rejected] == [
        (2, struct.pack(">iqq", *records[1]).hex()),
        (3, struct.pack(">iqq", *records[2]).hex()),
        (5, "000102"),
    ]
    assert (imported.sources[0].records, imported.sources[0].rejected) == (5, 3)
