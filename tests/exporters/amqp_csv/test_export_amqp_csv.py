"""Are answered messages exported as the federation study wrote them? Expected values come from manual arithmetic."""

import csv
from pathlib import Path

import pytest

from answered_runs import (
    ANSWER_MS,
    MEASURED,
    MS,
    OFFSET_NS,
    OUT_OF_ORDER,
    SIZE,
    START_NS,
    TRANSFER_MS,
    UNANSWERED,
    WARMUP,
    write_answered_run,
)
from crescendo.exporters.registry import exporter_of
from crescendo.model.errors import ConfigError


def test_every_acknowledged_message_of_the_measure_phase_has_a_line(tmp_path: Path) -> None:
    [path] = exporter_of("amqp-csv")(write_answered_run(tmp_path / "run"), tmp_path / "out")
    assert f"_bandwidth_{MEASURED - 1}_{SIZE}_" in path.name
    with path.open(newline="") as file:
        lines = list(csv.reader(file))
    assert ",".join(lines[0]) == "Message ID,Producer ID,Consumer ID,Result,Sent time,Ack Sent Time,Ack Recv Time,"
    numbers = [number for number in range(WARMUP, WARMUP + MEASURED) if number != UNANSWERED]
    expected = []
    for number in numbers:
        sent_ms = (START_NS + OFFSET_NS) // MS + number * 10
        result = "-1" if number == OUT_OF_ORDER else "1"
        times = [str(sent_ms + after) for after in (0, TRANSFER_MS, ANSWER_MS)]
        expected.append([str(number + 1), "0", "0", result, *times, ""])
    assert lines[1 : 1 + len(numbers)] == expected
    end, blank, *derived = lines[1 + len(numbers) :]
    assert end[0] == "-1"
    assert blank == []
    seconds = ((MEASURED - 1) * 10 + ANSWER_MS) / 1000
    assert derived == [
        ["runtime", f"{seconds:.6f}", "sec"],
        ["throughput", f"{len(numbers) / seconds:.3f}", "msgs/sec"],
        ["bandwidth", f"{len(numbers) * SIZE / seconds / 1e6:.6f}", "MB/sec"],
    ]


def test_the_latency_test_has_no_throughput(tmp_path: Path) -> None:
    [path] = exporter_of("amqp-csv")(write_answered_run(tmp_path / "run", "ping-pong"), tmp_path / "out")
    assert "_latency_" in path.name
    assert path.read_text().splitlines()[-1].startswith("runtime,")


def test_a_run_without_answers_is_refused_with_the_cure(tmp_path: Path) -> None:
    run = write_answered_run(tmp_path / "run", "open")
    with pytest.raises(ConfigError, match=r"no group was answered; run it with mode: \{kind: echo\}"):
        exporter_of("amqp-csv")(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
