"""Are the logs of the other tools imported completely, and bad lines rejected without failing the import?

Expected numbers come from the csv module, from manual arithmetic, or from how the test made the log.
"""

import csv
import gzip
import json
import lzma
import math
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from answered_runs import ANSWER_MS, MEASURED, SIZE, TRANSFER_MS, WARMUP, write_answered_run
from crescendo.exporters.registry import exporter_of
from crescendo.importers.format import ImportOptions
from crescendo.model.errors import ConfigError
from crescendo.pipeline.job import analyze
from crescendo.pipeline.source.imported_counts import _source_latency
from crescendo.report.formats import moment
from imported_runs import SAMPLES, Run, rejected_lines, rows_of

MS = 10**6
T_MS = 1_400_000_000_000


def test_lines_of_performance_logs_become_spans(importing: Run, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(SAMPLES / "mlmq", logs)
    (logs / "old.log").write_bytes(
        gzip.compress(
            b"ClientConfiguration Name[c1] DurationUnit[us]\r\n"
            b"4;20131105215520;CSndReq#OK#SendMessage;\r\n"
            b"7;20131105215521;CSndReq#Error#SendMessage;C[12] more\r\n"
            b"7;20131399215521;CSndReq;C[1]\r\n"
            b"seven;1383684920403;BDb;C[1]\r\n"
            b"\r\n"
            b"1;99999999999999999999;BDb;C[1]\r\n"
            b"half a li"
        )
    )
    summary = importing("mlmq-log", [logs], tmp_path / "run")
    expected = []
    for path in sorted((SAMPLES / "mlmq").iterdir()):
        with path.open(newline="") as file:
            for row in list(csv.reader(file, delimiter=";"))[1:]:
                clients = float(row[3].removeprefix("C[").removesuffix("]"))
                expected.append((path.name, int(row[1]) * MS, int(row[0]) * MS, row[2], clients, row[3]))
    run = tmp_path / "run"
    found = rows_of(
        run, "spans", "SELECT source, t_ns, duration_ns, action, value, detail FROM rows WHERE source != 'old.log'"
    )
    assert sorted(found) == sorted(expected)
    start_ns = int(datetime(2013, 11, 5, 21, 55, 20, tzinfo=UTC).timestamp()) * 10**9
    query = "SELECT t_ns, duration_ns, action, detail, outcome, value FROM rows WHERE source = 'old.log' ORDER BY t_ns"
    old = rows_of(run, "spans", query)
    assert [row[:5] for row in old] == [
        (start_ns, 4000, "CSndReq#OK#SendMessage", "", "ok"),
        (start_ns + 10**9, 7000, "CSndReq#Error#SendMessage", "C[12] more", "error"),
    ]
    assert math.isnan(old[0][5])
    assert old[1][5] == 12.0
    assert [(row["line"], row["text"].split(";")[0]) for row in rejected_lines(run)] == [
        (4, "7"),
        (5, "seven"),
        (7, "1"),
        (8, "half a li"),
    ]
    counts = {Path(source.path).name: (source.records, source.rejected) for source in summary.sources}
    assert counts == {"old.log": (8, 4), "test_log.log": (8, 0), "test2_log.log": (8, 0), "test3_log.log": (9, 0)}
    described = rows_of(run, "events", "SELECT detail FROM rows WHERE source = 'old.log' AND kind = 'configuration'")
    assert "DurationUnit[us]" in str(described)


def test_line_numbers_are_right_in_every_block(importing: Run, spark: SparkSession, tmp_path: Path) -> None:
    """A file in many blocks: line n must be the n-th, wherever Spark splits the file."""
    lines = 20_000
    bad = {1 + number * 997 for number in range(1, 20)}
    text = [f"{n % 50};{T_MS + n};A" if n not in bad else f"line {n}" for n in range(1, lines + 1)]
    (tmp_path / "big.log").write_text("\n".join(text))
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "30000")
    try:
        summary = importing("mlmq-log", [tmp_path / "big.log"], tmp_path / "run")
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(before))
    assert summary.tables == {"spans": lines - len(bad)}
    assert [(row["line"], row["text"]) for row in rejected_lines(tmp_path / "run")] == [
        (number, f"line {number}") for number in sorted(bad)
    ]


def test_losses_and_reordering_follow_from_a_consumers_log(importing: Run, spark: SparkSession, tmp_path: Path) -> None:
    order = [n for n in range(200) if n not in {50, 51, 120}]
    order[10], order[11] = order[11], order[10]
    order.append(7)  # a duplicate
    lines = [f"{n} {T_MS + 10 * n} {T_MS + 10 * n + 3}" for n in order]
    (tmp_path / "consumer.log").write_text("\n".join(["# sequence sent received", *lines, "201 soon later"]))
    importing("amqperf", [tmp_path / "consumer.log"], tmp_path / "run")
    run = tmp_path / "run"
    assert rows_of(run, "sent", "SELECT count(*), count(DISTINCT seq), min(seq), max(seq) FROM rows") == [
        (200, 200, 0, 199)
    ]
    # The time of a missing message is interpolated between its neighbours.
    assert rows_of(run, "sent", "SELECT sent_ns FROM rows WHERE seq IN (50, 51, 120) ORDER BY seq") == [
        ((T_MS + 10 * n) * MS,) for n in (50, 51, 120)
    ]
    assert [row["line"] for row in rejected_lines(run)] == [len(lines) + 2]
    summary = analyze(run, spark, lambda _: None)
    total = summary.total
    assert (total.sent, total.delivered, total.lost, total.duplicated, total.reordered) == (200, 197, 3, 1, 1)
    assert summary.verdict.outcome.value == "fail"
    assert [(row.kind, row.count, row.min_ns, row.max_ns) for row in summary.latency] == [
        ("transfer", 198, 3 * MS, 3 * MS)
    ]


def test_an_absurd_number_does_not_fill_the_disk(importing: Run, tmp_path: Path) -> None:
    (tmp_path / "consumer.log").write_text(
        f"1,{T_MS},{T_MS}\n2,{T_MS + 1},{T_MS + 1}\n{10**17},{T_MS + 2},{T_MS + 2}\n"
    )
    summary = importing("amqperf", [tmp_path / "consumer.log"], tmp_path / "run")
    assert summary.tables == {"sent": 3, "received": 3}


def test_acknowledgements_give_both_directions(importing: Run, tmp_path: Path) -> None:
    path = tmp_path / "QPID_latency_6_1024_2014-03-01_10.00.00.csv"
    rows = [f"{n},1,7,1,{T_MS + 10 * n},{T_MS + 10 * n + 3},{T_MS + 10 * n + 7}," for n in (1, 2, 3, 6)]
    rows.insert(3, f"5,1,7,-1,0,{T_MS + 53},{T_MS + 57},")  # a warning: it arrived after an unknown time
    header = "Message ID,Producer ID,Consumer ID,Result,Sent time,Ack Sent Time,Ack Recv Time,"
    end = [f"-1,1,7,1,0,{T_MS},{T_MS},", "", "runtime,0.06,sec", "throughput,100.0,msgs/sec", "bandwidth,0.1,MB/sec"]
    path.write_text("\n".join([header, *rows, "4,1", *end]) + "\n")
    summary = importing("amqp-csv", [path], tmp_path / "run")
    run = tmp_path / "run"
    assert summary.messages == {"sent": 5, "received": 4, "settled": 4}
    # 4 is a gap between 3 and 5; 5 arrived, so it is not a gap.
    assert rows_of(run, "sent", "SELECT seq, size FROM rows ORDER BY seq") == [(n, 1024) for n in (1, 2, 3, 4, 6)]
    assert rows_of(run, "received", "SELECT seq, received_ns - sent_ns FROM rows ORDER BY seq") == [
        (n, 3 * MS) for n in (1, 2, 3, 6)
    ]
    assert rows_of(run, "settled", "SELECT DISTINCT settled_ns - sent_ns, outcome FROM rows") == [(7 * MS, 1)]
    assert [row["text"] for row in rejected_lines(run)] == ["4,1"]


def test_our_export_of_answered_messages_is_read_back(importing: Run, tmp_path: Path) -> None:
    write_answered_run(tmp_path / "exported")
    paths = list(exporter_of("amqp-csv")(tmp_path / "exported", tmp_path / "csv"))
    summary = importing("amqp-csv", paths, tmp_path / "run")
    run = tmp_path / "run"
    # The message without an answer is a gap in the numbers, so it counts as sent; the one that broke the order arrived.
    assert summary.messages == {"sent": MEASURED, "received": MEASURED - 1, "settled": MEASURED - 1}
    assert rows_of(run, "sent", "SELECT min(seq), max(seq), max(size) FROM rows") == [
        (WARMUP + 1, WARMUP + MEASURED, SIZE)
    ]
    query = "SELECT DISTINCT received_ns - sent_ns FROM rows"
    assert rows_of(run, "received", query) == [(TRANSFER_MS * MS,)]
    assert rows_of(run, "settled", "SELECT DISTINCT settled_ns - sent_ns FROM rows") == [(ANSWER_MS * MS,)]


def test_quiver_files_of_one_directory_are_a_pair(importing: Run, tmp_path: Path) -> None:
    for name, shift in (("one", 0), ("two", 5)):
        folder = tmp_path / "pairs" / name
        folder.mkdir(parents=True)
        sent = [f"{n},{T_MS + n}\n" for n in range(1, 21)]
        sent.insert(4, f"S1,{T_MS + 9}\n")
        (folder / "sender-transfers.csv").write_text("".join(sent))
        received = "".join(f"{n},{T_MS + n},{T_MS + n + 2 + shift}\n" for n in range(1, 20))
        (folder / "receiver-transfers.csv.xz").write_bytes(lzma.compress(received.encode()))
    (tmp_path / "pairs/one/sender-summary.json").write_text('{"configuration": {"body_size": 100}}')
    (tmp_path / "pairs/one/sender-snapshots.csv").write_text("1,2,3,4,5,6,7,8\n")
    summary = importing("quiver", [tmp_path / "pairs"], tmp_path / "run")
    run = tmp_path / "run"
    assert [Path(path).name for path in summary.skipped] == ["sender-snapshots.csv"]
    assert rows_of(run, "sent", "SELECT sender, count(*), max(size) FROM rows GROUP BY sender ORDER BY sender") == [
        (0, 20, 100),
        (1, 20, 0),
    ]
    query = "SELECT receiver, sender, count(*), min(received_ns - sent_ns) FROM rows GROUP BY ALL ORDER BY ALL"
    assert rows_of(run, "received", query) == [(0, 0, 19, 2 * MS), (1, 1, 19, 7 * MS)]
    assert rows_of(run, "settled", "SELECT sender, first_seq, settled_ns - sent_ns FROM rows ORDER BY sender") == [
        (0, 1, 8 * MS),
        (1, 1, 8 * MS),
    ]


def test_transfers_without_numbers_agree_with_quivers_own_summaries(importing: Run, tmp_path: Path) -> None:
    """Files that quiver itself wrote; the expected values are in its own summaries."""
    sender, receiver = (
        json.loads((SAMPLES / f"quiver/{role}-summary.json").read_text())["results"] for role in ("sender", "receiver")
    )
    summary = importing("quiver", [SAMPLES / "quiver"], tmp_path / "run")
    assert sorted(Path(path).name for path in summary.skipped) == ["receiver-snapshots.csv", "sender-snapshots.csv"]
    query = "SELECT count(*), min(seq), max(seq), min(sent_ns), max(sent_ns), min(size), max(size) FROM rows"
    count, first_ns, last_ns = sender["message_count"], sender["first_send_time"] * MS, sender["last_send_time"] * MS
    assert rows_of(tmp_path / "run", "sent", query) == [(count, 0, count - 1, first_ns, last_ns, 100, 100)]
    query = (
        "SELECT count(*), count(DISTINCT seq), max(seq), min(received_ns), max(received_ns), "
        "avg(received_ns - sent_ns), quantile_cont(received_ns - sent_ns, [0, 0.25, 0.5, 0.75, 1]) FROM rows"
    )
    count, first_ns, last_ns = (
        receiver["message_count"], receiver["first_receive_time"] * MS, receiver["last_receive_time"] * MS
    )  # fmt: skip
    (*counts, average_ns, quartiles_ns) = rows_of(tmp_path / "run", "received", query)[0]
    assert counts == [count, count, count - 1, first_ns, last_ns]
    assert math.isclose(average_ns, receiver["latency_average"] * MS)
    assert [int(quartile_ns / MS) for quartile_ns in quartiles_ns] == receiver["latency_quartiles"]


def test_messages_without_numbers_are_counted_across_a_rejected_line(importing: Run, tmp_path: Path) -> None:
    (tmp_path / "sender-transfers.csv").write_text("".join(f"{T_MS + n},0\n" for n in range(9)))
    received = [f"{T_MS + n},{T_MS + n + 4}\n" for n in range(7)]
    received.insert(3, f"{T_MS},0\n")
    (tmp_path / "receiver-transfers.csv").write_text("".join(received))
    importing("quiver", [tmp_path], tmp_path / "run")
    assert [row["line"] for row in rejected_lines(tmp_path / "run")] == [4]
    assert rows_of(tmp_path / "run", "sent", "SELECT seq FROM rows ORDER BY sent_ns") == [(n,) for n in range(9)]
    query = "SELECT seq, sent_ns, received_ns - sent_ns, flags FROM rows ORDER BY arrival"
    assert rows_of(tmp_path / "run", "received", query) == [(n, (T_MS + n) * MS, 4 * MS, 0) for n in range(7)]


def test_sent_messages_follow_from_a_receiver_without_numbers_or_sender(importing: Run, tmp_path: Path) -> None:
    (tmp_path / "receiver-transfers.csv").write_text("".join(f"{T_MS + n},{T_MS + n + 4}\n" for n in range(7)))
    importing("quiver", [tmp_path], tmp_path / "run")
    query = "SELECT seq, sent_ns FROM rows ORDER BY seq"
    assert rows_of(tmp_path / "run", "sent", query) == [(n, (T_MS + n) * MS) for n in range(7)]


def test_files_of_two_quiver_versions_are_not_a_pair(importing: Run, tmp_path: Path) -> None:
    (tmp_path / "sender-transfers.csv").write_text(f"1,{T_MS}\n")
    (tmp_path / "receiver-transfers.csv").write_text(f"{T_MS},{T_MS + 1}\n")
    with pytest.raises(ConfigError, match="two versions of quiver are not a pair"):
        importing("quiver", [tmp_path], tmp_path / "run")


def test_the_intact_part_of_a_truncated_zstd_file_is_read(importing: Run, tmp_path: Path) -> None:
    whole = "".join(f"{T_MS + n},{T_MS + n * n % 1009}\n" for n in range(50_000)).encode()
    compressed = pa.Codec("zstd").compress(whole, asbytes=True)
    (tmp_path / "receiver-transfers.csv.zst").write_bytes(compressed[: len(compressed) // 2])
    importing("quiver", [tmp_path], tmp_path / "run")
    ((rows,),) = rows_of(tmp_path / "run", "received", "SELECT count(*) FROM rows")
    assert 0 < rows < 50_000
    assert any("truncated" in row["reason"] for row in rejected_lines(tmp_path / "run"))


TRANSFER = (
    "DATE={end} HOST={host} PROG=globus-gridftp-server NL.EVNT=FTP_INFO START={start} USER=somebody FILE=/a file "
    "BUFFER=0 BLOCK=262144 NBYTES={octets} VOLUME=/ STREAMS=1 STRIPES=1 DEST=[192.0.2.1] TYPE=RETR CODE=226\n"
)


def test_bytes_of_each_server_are_summed_by_period(importing: Run, tmp_path: Path) -> None:
    text = [
        TRANSFER.format(end="20070215110703.2102", start="20070215110702.763298", host="one.example", octets=55),
        "[77] words before :: Transfer stats: "
        + TRANSFER.format(end="20070215110712.000001", start="20070215110702.000001", host="one.example", octets=45),
        TRANSFER.format(end="20070215110713.500000", start="20070215110713.000000", host="one.example", octets=7),
        TRANSFER.format(end="20070215110713.500000", start="20070215110713.000000", host="two.example", octets=2**40),
        TRANSFER.format(end="20070215110713.500000", start="yesterday", host="two.example", octets=1),
    ]
    (tmp_path / "transfers.log").write_text("".join(text))
    importing("gftp", [tmp_path / "transfers.log"], tmp_path / "run", ImportOptions(period_ns=10 * 10**9))
    run = tmp_path / "run"
    begin_ns = int(datetime(2007, 2, 15, 11, 7, 0, tzinfo=UTC).timestamp()) * 10**9
    assert rows_of(run, "readings", "SELECT t_ns, entity, value FROM rows WHERE metric = 'bytes' ORDER BY ALL") == [
        (begin_ns, "server/one.example", 55.0),
        (begin_ns + 10 * 10**9, "server/one.example", 52.0),
        (begin_ns + 10 * 10**9, "server/two.example", float(2**40)),
    ]
    # The fraction .2102 is from a server that does not pad: 2,102 µs.
    first = rows_of(run, "spans", "SELECT t_ns, duration_ns, outcome FROM rows WHERE value = 55")
    assert first == [(begin_ns + 3_002_102_000, 238_804_000, "226")]
    assert [row["line"] for row in rejected_lines(run)] == [5]
    assert "somebody" not in str(rows_of(run, "spans", "SELECT * FROM rows"))


def test_perftest_rates_become_counts_per_period(importing: Run, tmp_path: Path) -> None:
    names = [f"{which} {side} latency (µs)" for side in ("consumer", "confirm") for which in
             ("min", "median", "75th p.", "95th p.", "99th p.")]  # fmt: skip
    rates = ["published", "returned", "confirmed", "nacked", "received"]
    header = ",".join(["id", "time (s)", *(f"{name} (msg/s)" for name in rates), *names])
    (tmp_path / "perf.csv").write_text(
        f"{header}\nt,1.000,1000,,,,990,1,2,3,4,5,,,,,\nt,2.500,2000,,,,0.50,1,2,3,4,6,,,,,\nt,oops\n"
    )
    importing("perftest", [tmp_path / "perf.csv"], tmp_path / "run")
    run = tmp_path / "run"
    assert rows_of(run, "rates", "SELECT role, t_ns, messages FROM rows ORDER BY role DESC, t_ns") == [
        ("sender", 0, 1000),
        ("sender", 10**9, 3000),
        ("receiver", 0, 990),
        ("receiver", 10**9, 1),
    ]
    query = "SELECT t_ns, value FROM rows WHERE metric = '99th p. consumer latency (µs)' ORDER BY t_ns"
    assert rows_of(run, "readings", query) == [(10**9, 5.0), (2_500_000_000, 6.0)]
    assert _source_latency([str(path) for path in (run / "readings").glob("*.parquet")]) == {
        f"{which} consumer latency (µs)": value
        for which, value in {"min": 1.0, "median": 2.0, "75th p.": 3.0, "95th p.": 4.0, "99th p.": 5.5}.items()
    }
    assert moment(0) == "date unknown"
    assert [row["line"] for row in rejected_lines(run)] == [4]
