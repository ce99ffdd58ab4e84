"""The files of `crescendo export maestro`, read back by foreign code and compared with the raw parts."""

import csv
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from crescendo.exporters.maestro.export import export_maestro
from crescendo.inspectors.base import Inspection
from crescendo.inspectors.kinds.qpid_dispatch import add_answer
from crescendo.model.errors import ConfigError
from crescendo.record.summary import SUMMARY
from exported_runs import (
    ARTEMIS,
    END_NS,
    MEASURE_NS,
    OFFSET_NS,
    PASSWORD,
    RECEIVERS,
    ROUTER,
    SECOND_NS,
    SENDERS,
    STALL_S,
    Readings,
    Texts,
    write_run,
)

FIXTURES = Path(__file__).parent / "fixtures"
INSPECTED_NS = (MEASURE_NS - SECOND_NS, MEASURE_NS, MEASURE_NS + 5 * SECOND_NS)
WHOLE = "(flags & 6) = 0"  # neither corrupt nor stray


def artemis() -> tuple[Readings, Texts]:
    readings: Readings = []
    for number, t_ns in enumerate(INSPECTED_NS):
        for area, used in (("heap", 5e8 + number), ("eden", 1e8), ("non-heap", 7e7)):
            usage = {"init": 2.0**29, "max": -1.0, "committed": 6e8, "used": used}
            readings += [(t_ns, f"memory/{area}", metric, value) for metric, value in usage.items()]
        for queue in ("perf", 'od,d "name"'):
            counts = {"MessagesAdded": 1e6 + number, "MessageCount": 82.0, "MessagesAcknowledged": 20_658_669.0}
            counts |= {"MessagesExpired": 0.0, "ConsumerCount": 1.0, "DeliveringCount": 3.0}
            readings += [(t_ns, f"queue/{queue}", metric, value) for metric, value in counts.items()]
        readings.append((t_ns, "os", "TotalSwapSpaceSize", 2.0**31))
    return readings, [(INSPECTED_NS[0], {"os": {"Name": "Linux", "Arch": "amd64"}})]


def router() -> tuple[Readings, Texts]:
    """Real answers of a real router, as the inspector reads them."""
    inspection = Inspection()
    for kind in ("router", "router.link", "connection", "allocator"):
        add_answer(inspection, kind, SimpleNamespace(application_properties={"statusCode": 200}, body=answer(kind)))  # type: ignore[arg-type]
    texts: dict[str, dict[str, str]] = {}
    for (entity, attribute), text in inspection.texts.items():
        texts.setdefault(entity, {})[attribute] = text
    return [(t_ns, *reading) for t_ns in INSPECTED_NS for reading in inspection.readings], [(INSPECTED_NS[0], texts)]


def answer(kind: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((FIXTURES / "router" / f"{kind}.json").read_text())["body"]
    return body


def entities(kind: str) -> list[dict[str, Any]]:
    body = answer(kind)
    return [dict(zip(body["attributeNames"], values, strict=True)) for values in body["results"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    seen = {ARTEMIS: artemis(), ROUTER: router()}
    return write_run(
        tmp_path_factory.mktemp("runs") / "run",
        {source: readings for source, (readings, _) in seen.items()},
        {source: texts for source, (_, texts) in seen.items()},
    )


@pytest.fixture(scope="module")
def out(run: Path) -> Path:
    folder = run.parent / "maestro"
    export_maestro(run, folder)
    return folder


def folder_of(out: Path, peer: str, outcome: str = "success") -> Path:
    return out / peer.split("-", maxsplit=1)[0] / outcome / "0" / peer


def dat(path: Path) -> tuple[tuple[Any, ...], list[tuple[int, int, int]]]:
    octets = path.read_bytes()
    return struct.unpack(">8siii", octets[:20]), list(struct.iter_unpack(">iqq", octets[20:]))


def sheet(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def histograms(path: Path) -> list[HdrHistogram]:
    reader = HistogramLogReader(str(path), HdrHistogram(1, 86_400_000_000, 3))
    found = []
    while (histogram := reader.get_next_interval_histogram()) is not None:
        found.append(histogram)
    reader.close()
    return found


def properties(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text(encoding="ascii").splitlines() if line and not line.startswith("#")]
    return {key: re.sub(r"\\(.)", r"\1", value) for key, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize("peer", [*SENDERS, *RECEIVERS])
def test_rates_are_the_counts_of_the_raw_parts_second_by_second(peer: str, run: Path, out: Path) -> None:
    role = peer.split("-", maxsplit=1)[0]
    sample, _ = dat(FIXTURES / "sender.dat")
    header, records = dat(folder_of(out, peer) / f"{role}.dat")
    assert header == (*sample[:3], {"sender": 1, "receiver": 2}[role])
    t_ns, where = ("sent_ns", "true") if role == "sender" else ("received_ns", WHOLE)
    query = f"""
        SELECT ({t_ns} - {MEASURE_NS}) // {SECOND_NS} AS second, count(*)
        FROM '{run}/{"sent" if role == "sender" else "received"}/{peer}-*.parquet'
        WHERE {where} AND {t_ns} >= {MEASURE_NS} AND {t_ns} < {END_NS} GROUP BY second
    """  # noqa: S608
    expected = dict(duckdb.execute(query).fetchall())
    assert [messages for _, messages, _ in records] == [expected.get(second, 0) for second in range(26)]
    first_us = (MEASURE_NS + OFFSET_NS) // 1000
    assert [(metadata, t_us) for metadata, _, t_us in records] == [(0, first_us + n * 10**6) for n in range(26)]


def test_a_second_without_messages_is_a_record_of_0(out: Path) -> None:
    _, records = dat(folder_of(out, SENDERS[0]) / "sender.dat")
    assert [records[second][1] for second in range(*STALL_S)] == [0, 0]


@pytest.mark.parametrize("peer", RECEIVERS)
def test_latencies_are_those_of_the_raw_parts(peer: str, run: Path, out: Path) -> None:
    query = f"""
        SELECT count(*), max(us), quantile_disc(us, [0.4999, 0.5001, 0.9899, 0.9901]), count(*) FILTER (us < 0)
        FROM (SELECT (received_ns - sent_ns) // 1000 AS us FROM '{run}/received/{peer}-*.parquet'
              WHERE {WHOLE} AND intended_ns >= {MEASURE_NS} AND intended_ns < {END_NS})
    """  # noqa: S608
    count, longest, around, negative = duckdb.execute(query).fetchall()[0]
    assert negative > 0
    path = folder_of(out, peer) / "receiverd-latency.hdr"
    intervals = histograms(path)
    total = HdrHistogram(1, 86_400_000_000, 3)
    for interval in intervals:
        total.add(interval)
    assert total.get_total_count() == count
    assert total.get_max_value() == pytest.approx(longest, rel=1e-3)
    # Tools round ranks differently, and values to three digits.
    assert around[0] * 0.999 <= total.get_value_at_percentile(50) <= around[1] * 1.001
    assert around[2] * 0.999 <= total.get_value_at_percentile(99) <= around[3] * 1.001
    assert f"#[{negative} values below zero are recorded as 0]" in path.read_text()
    starts_ms = [interval.get_start_time_stamp() for interval in intervals]
    assert starts_ms == pytest.approx([(MEASURE_NS + OFFSET_NS) / 1e6 + n * 10_000 for n in range(3)], abs=1)


def test_the_log_has_the_format_of_maestros_own(out: Path) -> None:
    def shape(path: Path) -> list[str]:
        lines = [re.sub(r"HIST\S+", "HIST", line) for line in path.read_text().splitlines()[:5]]
        return [re.sub(r"\b[A-Z][a-z]{2}\b|CEST|UTC", "word", re.sub(r"\d+", "9", line)) for line in lines]

    assert len(histograms(FIXTURES / "file-03.hdr")) == 7
    assert shape(folder_of(out, RECEIVERS[0]) / "receiverd-latency.hdr") == shape(FIXTURES / "file-03.hdr")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (ARTEMIS, "heap.csv"),
        (ARTEMIS, "queues.csv"),
        (ROUTER, "general.csv"),
        (ROUTER, "qdmemory.csv"),
        (ROUTER, "connections.csv"),
    ],
)
def test_columns_are_called_and_ordered_as_in_maestros_files(source: str, name: str, out: Path) -> None:
    ours, theirs = sheet(folder_of(out, source) / name), sheet(FIXTURES / name)
    assert ours[0] == theirs[0]
    assert {len(row) for row in ours} == {len(theirs[0])}
    assert re.sub(r"\d", "9", ours[1][0]) == re.sub(r"\d", "9", theirs[1][0])


def test_every_inspector_has_the_files_of_its_kind_and_no_others(out: Path) -> None:
    def names(source: str) -> set[str]:
        return {path.name for path in folder_of(out, source).iterdir()}

    both = {"test.properties", "inspector.properties"}
    assert names(ARTEMIS) == both | {"heap.csv", "memory-areas.csv", "queues.csv"}
    assert names(ROUTER) == both | {"general.csv", "routerLink.csv", "qdmemory.csv", "connections.csv"}


def test_queue_rows_match_the_readings(run: Path, out: Path) -> None:
    rows = sheet(folder_of(out, ARTEMIS) / "queues.csv")
    columns = rows[0][2:]
    read = duckdb.execute(
        f"SELECT t_ns, entity, metric, value FROM '{run}/readings/{ARTEMIS}-*.parquet' "  # noqa: S608
        "WHERE starts_with(entity, 'queue/') AND metric != 'DeliveringCount'"
    ).fetchall()
    expected = sorted((entity[6:], metric, value) for _, entity, metric, value in read)
    found = [(row[1], column, float(cell)) for row in rows[1:] for column, cell in zip(columns, row[2:], strict=True)]
    assert sorted(found) == expected
    assert [row[0] for row in rows[1::2]] == ["2030-01-02 03:04:06", "2030-01-02 03:04:07", "2030-01-02 03:04:12"]


def test_memory_areas_are_separate_from_the_heap(out: Path) -> None:
    heap, areas = (sheet(folder_of(out, ARTEMIS) / name) for name in ("heap.csv", "memory-areas.csv"))
    assert heap[0] == areas[0]
    assert [row[1:] for row in heap[1:]] == [
        ["Heap", "536870912", "-1", "600000000", str(500_000_000 + number)] for number in range(3)
    ]
    assert {row[1] for row in areas[1:]} == {"eden"}


def test_router_sheets_match_the_management_answers(out: Path) -> None:
    folder = folder_of(out, ROUTER)
    (general, (expected,)) = sheet(folder / "general.csv")[:2], entities("router")
    row = dict(zip(*general, strict=True))
    assert (row["Name"], row["Version"], row["Mode"]) == (
        expected["name"].removeprefix("router/"),
        expected["version"],
        expected["mode"],
    )
    assert (row["Links"], row["IngressCount"]) == (str(expected["linkCount"]), str(expected["deliveriesIngress"]))
    memory = sheet(folder / "qdmemory.csv")
    allocators = entities("allocator")
    assert [[row[1], row[2], row[5]] for row in memory[1 : len(allocators) + 1]] == [
        [expected["typeName"], str(expected["typeSize"]), str(expected["totalAllocFromHeap"])]
        for expected in allocators
    ]
    links = sheet(folder / "routerLink.csv")
    expected_links = entities("router.link")
    assert len(links) == 1 + 3 * len(expected_links)
    by_identity = {row[4]: dict(zip(links[0], row, strict=True)) for row in links[1:]}
    for expected in expected_links:
        row = by_identity[expected["identity"]]
        assert (row["LinkType"], row["LinkDir"]) == (expected["linkType"], expected["linkDir"])
        assert (row["DeliveryCount"], row["Capacity"]) == (str(expected["deliveryCount"]), str(expected["capacity"]))


def test_connections_show_booleans_and_keep_their_properties_together(out: Path) -> None:
    rows = sheet(folder_of(out, ROUTER) / "connections.csv")
    by_identity = {row[6]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}
    for expected in entities("connection"):
        row = by_identity[expected["identity"]]
        assert (row["Authenticated"], row["Opened"]) == (
            str(expected["isAuthenticated"]).lower(),
            str(expected["opened"]).lower(),
        )
        product = (expected["properties"] or {}).get("product")
        if product:
            assert f"product={product}" in row["Properties"]


def test_properties_have_what_maestro_needs_and_no_secrets(out: Path) -> None:
    load = properties(folder_of(out, SENDERS[0]) / "test.properties")
    assert properties(FIXTURES / "test.properties").keys() - load.keys() == {"fcl"}  # bounds on latency are checks here
    assert (load["brokerUri"], load["protocol"]) == ("amqp://broker.lab:5672/perf", "AMQP")
    numbers = {key: int(load[key]) for key in ("duration", "rate", "parallelCount", "messageSize", "variableSize")}
    assert numbers == {"duration": 26, "rate": 735, "parallelCount": 2, "messageSize": 256, "variableSize": 0}
    system = properties(folder_of(out, ARTEMIS) / "inspector.properties")
    assert system["productVersion"] == "2.50.0"
    assert (system["operatingSystemArch"], system["systemSwap"]) == ("amd64", str(2**31))
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in written


def test_a_failed_run_is_exported_as_failed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {}, {}, lost=3)
    export_maestro(run, tmp_path / "out")
    assert folder_of(tmp_path / "out", SENDERS[0], "failed").is_dir()
    assert not (tmp_path / "out" / "sender" / "success").exists()


def test_a_damaged_part_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {}, {})
    part = next((run / "sent").iterdir())
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=part.name):
        export_maestro(run, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def crescendo(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "crescendo.cli.main", "export", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_mistake_is_one_sentence_with_its_cure(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {}, {})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    (run / SUMMARY).rename(tmp_path / SUMMARY)
    new = str(tmp_path / "new")
    code, stderr = crescendo("maestro", str(run), "--out", new)
    assert (code, stderr.count("\n")) == (2, 1)
    assert f"crescendo analyze {run}" in stderr
    (tmp_path / SUMMARY).rename(run / SUMMARY)
    for arguments, fragment in (
        (("maestro", str(run), "--out", str(tmp_path / "full")), "not empty"),
        (("maestro", str(tmp_path / "nothing"), "--out", new), "no such directory"),
        (("gnuplot", str(run), "--out", new), "known: csv, junit, maestro"),
    ):
        code, stderr = crescendo(*arguments)
        assert (code, stderr.count("\n")) == (2, 1)
        assert fragment in stderr
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    assert not (tmp_path / "new").exists()
