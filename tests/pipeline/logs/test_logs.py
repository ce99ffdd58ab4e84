"""Does the log analyzer count correctly, and does it draw what it counted?

Expected numbers come from NumPy; Java decodes the PNG.
"""

import csv
import gzip
import io
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from crescendo.cli.logs import logs, read_logs
from crescendo.cli.main import app
from crescendo.importers.format import LINE, REASON, SOURCE, ImportResult, Workspace
from crescendo.importers.formats.mlmq_log import MLMQ_LOG
from crescendo.importers.sources import find_files
from crescendo.model.errors import ConfigError
from crescendo.pipeline.logs.eps import as_eps
from crescendo.pipeline.logs.figure import HEIGHT, WIDTH, Drawing, draw, ticks
from crescendo.pipeline.logs.job import LogQuery, actions, run_query, unreadable_lines
from crescendo.pipeline.logs.letters import letter
from crescendo.pipeline.logs.png import as_png
from crescendo.pipeline.logs.texts import as_csv, as_text
from crescendo.pipeline.logs.windows import PERCENTILES, Sample, Slot

SAMPLES = Path(__file__).parents[2] / "importers" / "samples" / "mlmq"
MS = 10**6
T_MS = 1_383_684_920_000
TYPES = ("CSndReq#OK#", "CSndReq", "BDb")
Logs = tuple[Path, list[tuple[int, float, str]]]
"""A directory, and the end in ms, the duration in ms and the action of every good line in it."""


@pytest.fixture(scope="module")
def random_logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """Four logs in three directories."""
    folder = tmp_path_factory.mktemp("logs")
    random = np.random.default_rng(8)
    lines: list[tuple[int, float, str]] = []

    def content(header: str, rows: list[tuple[str, int, str]]) -> str:
        return "\n".join([header, *(f"{duration};{t};{action};C[3]" for duration, t, action in rows)]) + "\n"

    def random_rows(count: int, unit_ms: float) -> list[tuple[str, int, str]]:
        rows = []
        for _ in range(count):
            t = T_MS + int(random.integers(0, 5000))
            duration, action = (
                int(random.gamma(2, 40)),
                str(random.choice(["CSndReq#OK#Send", "CSndReq#Error#", "BDb"])),
            )
            lines.append((t, duration * unit_ms, action))
            rows.append((str(duration), t, action))
        return rows

    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.log").write_text(content("ClientConfiguration Name[a]", random_rows(400, 1)))
    packed = content("ClientConfiguration Name[b] DurationUnit[us]", random_rows(300, 0.001))
    (folder / "deep" / "b.log.gz").write_bytes(gzip.compress(packed.encode()))
    old = [(str(n), f"{datetime.fromtimestamp(T_MS // 1000 + n, UTC):%Y%m%d%H%M%S}", "BDb#old") for n in range(5)]
    lines += [(T_MS + 1000 * n, n, "BDb#old") for n in range(5)]
    (folder / "deep" / "er" / "c.log").write_text(content("BrokerConfiguration Port[1]", old))  # type: ignore[arg-type]
    (folder / "deep" / "er" / "bad.log").write_text(f"4;{T_MS};BDb;C[1]\nfour;{T_MS};BDb;\n4;2013;\n4;yesterday;BDb;\n")
    lines.append((T_MS, 4, "BDb"))
    (folder / "readme.md").write_text("no log")
    return folder, lines


def read_all(spark: SparkSession, directory: Path, folder: Path) -> ImportResult:
    return read_logs(Workspace(spark, folder, lambda _: None), find_files([directory], MLMQ_LOG)[0])[1]


@pytest.fixture(scope="module")
def random_read(spark: SparkSession, random_logs: Logs, tmp_path_factory: pytest.TempPathFactory) -> ImportResult:
    return read_all(spark, random_logs[0], tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="module")
def sample_spans(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return read_all(spark, SAMPLES, tmp_path_factory.mktemp("desk")).frames[0][1]


def in_ms(text: str) -> float | None:
    return float(text) if text else None


def test_every_number_matches_numpy(random_read: ImportResult, random_logs: Logs) -> None:
    _, lines = random_logs
    window_ms, trim_ms = 250, 300
    written = as_csv(run_query(random_read.frames[0][1], LogQuery(TYPES, window_ms * MS, trim_ms * MS)))
    rows = list(csv.DictReader(io.StringIO(written), delimiter=";"))
    start_ms = min(t for t, _, _ in lines) + trim_ms
    end_ms = max(t for t, _, _ in lines) - trim_ms
    windows = (end_ms - start_ms) // window_ms + 1
    assert [(row["Type"], int(row["Timestamp"])) for row in rows] == [
        (name, start_ms + index * window_ms) for name in TYPES for index in range(windows)
    ]
    for row in rows:
        begin = int(row["Timestamp"])
        durations = np.array(
            [
                duration
                for t, duration, action in lines
                if begin <= t < begin + window_ms and t <= end_ms and action.startswith(row["Type"])
            ]
        )
        seconds = min(window_ms, end_ms - begin) / 1000
        assert int(row["Count"]) == durations.size
        assert float(row["Seconds"]) == pytest.approx(seconds)
        assert float(row["Rate"]) == pytest.approx(durations.size / seconds, abs=1e-6)
        assert row["Time"] == f"{datetime.fromtimestamp(begin / 1000, UTC):%Y-%m-%d %H:%M:%S}.{begin % 1000:03d}"
        if durations.size:
            expected = {"Mean": durations.mean(), "Min": durations.min(), "Max": durations.max()}
            expected |= {"Median": np.percentile(durations, 50, method="weibull")}
            for percent in (0.5, 1.0, 2.5, 5.0, 10.0, 90.0, 95.0, 97.5, 99.0, 99.5):
                expected[f"Percentile {percent}"] = np.percentile(durations, percent, method="weibull")
            if durations.size > 1:
                expected |= {"StdDev": durations.std(ddof=1), "Variance": durations.var(ddof=1)}
            assert {name: in_ms(row[name]) for name in expected} == pytest.approx(expected, abs=2e-6)
    assert any(int(row["Count"]) > 20 for row in rows)
    # Errors are not successes, and one type may contain another.
    totals = {name: sum(int(row["Count"]) for row in rows if row["Type"] == name) for name in TYPES}
    assert totals["CSndReq#OK#"] < totals["CSndReq"]


def test_the_samples_match_a_count_by_hand(sample_spans: DataFrame) -> None:
    """Three logs of the original; BRcvReq ends at 1 or 2, 3, 4, 5, 123 and 383 s with 10, 15, 11, 14, 20 and 20 ms."""
    slots = run_query(sample_spans, LogQuery(("BRcvReq",), 60_000 * MS))
    first, third, last = (slots[index].sample for index in (0, 2, 6))
    assert first is not None and third is not None and last is not None  # noqa: PT018
    assert (first.count, first.mean_ns, first.min_ns, first.max_ns) == (12, 12.5 * MS, 10 * MS, 15 * MS)
    assert first.percentiles_ns[50.0] == 12.5 * MS
    # Three times 2.5², 2.5², 1.5² and 1.5², over eleven.
    assert first.deviation_ns == pytest.approx((3 * (2 * 6.25 + 2 * 2.25) / 11) ** 0.5 * MS)
    assert (third.count, third.deviation_ns) == (3, 0.0)
    assert (last.count, last.deviation_ns) == (1, None)  # one value has no deviation
    assert [slots[index].sample for index in (1, 3, 4, 5)] == [None] * 4
    assert actions(sample_spans, 1) == [("BRcvReq", 16)]


def test_the_text_has_one_line_per_type(sample_spans: DataFrame) -> None:
    text = as_text(run_query(sample_spans, LogQuery(("BRcvReq", "BDbReq"), None)))
    values = np.array([10, 15, 11, 14] * 3 + [20] * 4)
    facts = f"Mean: {values.mean():g}, Stddev: {values.std(ddof=1):.6f}, Count: 16, Min: 10, Max: 20, Median: 14"
    assert text.splitlines() == [
        f"Type: BRcvReq, {facts}, Seconds: 381.988",
        "Type: BDbReq, Mean: 9, Stddev: 0, Count: 3, Min: 9, Max: 9, Median: 9, Seconds: 381.988",
    ]


def test_bad_lines_are_counted_with_their_location_and_reason(random_read: ImportResult, random_logs: Logs) -> None:
    aside = unreadable_lines(random_read.rejects, SOURCE, LINE, REASON)
    assert aside.count == 3
    assert [line for _, line, _ in aside.first] == [2, 3, 4]
    assert "duration" in aside.first[0][2]
    assert sum(random_read.records.values()) == len(random_logs[1]) + 3 + 3  # three headers, three bad lines


def test_an_unsuitable_query_is_refused_with_a_cure(sample_spans: DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"--type 'BXyz': no action starts like this; .* BRcvReq"):
        run_query(sample_spans, LogQuery(("BRcvReq", "BXyz"), 60_000 * MS))
    with pytest.raises(ConfigError, match=r"--trim 200s: nothing is left; the logs cover 381988ms"):
        run_query(sample_spans, LogQuery(("BRcvReq",), 60_000 * MS, 200_000 * MS))
    with pytest.raises(ConfigError, match=r"--window 1ms: the logs would have 381,989 windows"):
        run_query(sample_spans, LogQuery(("BRcvReq",), MS))


@pytest.mark.parametrize(
    ("changes", "cure"),
    [
        ({"form": "gif"}, "--format gif: unknown; choose one of csv, txt, png, eps"),
        ({"form": "png"}, "--format png: a plot needs a file; give one with --out"),
        ({"show": "rate"}, "--show rate: unknown; choose one of response, throughput"),
        ({"centre": "mode"}, "--centre mode: unknown; choose one of median, mean"),
        ({"bars": "iqr"}, "--bars iqr: unknown; choose one of percentile, stddev"),
        ({"window": "0s"}, "--window 0s: too short"),
        ({"window": "60"}, "--window: '60' is not a duration"),
        ({"types": [""]}, "--type: empty"),
        ({"out": Path("nowhere/at/all.csv")}, "--out nowhere/at/all.csv: there is no directory nowhere/at"),
        ({"directory": Path("nowhere")}, "nowhere: no such file or directory"),
    ],
)
def test_a_wrong_option_is_a_one_line_error_before_spark_starts(changes: dict[str, Any], cure: str) -> None:
    usual: dict[str, Any] = {"directory": SAMPLES, "types": ["B"], "window": "60s", "trim": "0s", "form": "csv"}
    usual |= {"show": "response", "centre": "median", "bars": "percentile", "out": None}
    with pytest.raises(ConfigError, match=re.escape(cure)):
        logs(**(usual | changes))


def drawn_slots() -> list[Slot]:
    """Two types, five windows; the second type has no samples in the third window, and the last window is partial."""
    slots = []
    for name, scale in (("slow (ms)", 2.0), ("fast", 1.0)):
        for index in range(5):
            percentiles = {percent: scale * (percent + index) * MS for percent in PERCENTILES}
            sample = Sample(100 + index, scale * 60 * MS, (scale * 20 * MS) ** 2, 0, 200 * MS, percentiles)
            empty = name == "fast" and index == 2
            length_ns = 5 * 10**9 if index == 4 else 10**10
            slots.append(Slot(name, 7 * 10**9 + index * 10**10, length_ns, index < 4, None if empty else sample))
    return slots


def values_of(drawing: Drawing, positions: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Convert positions to values, using the numbers at the axes, as a reader with a ruler would."""
    scales = []
    for axis, anchor in (("x", "middle"), ("y", "end")):
        found = [label for label in drawing.labels if label.anchor == anchor and re.fullmatch(r"-?[\d.,]+", label.text)]
        shift = 5 if axis == "y" else 0  # the numbers of the y axis are a little below their grid lines
        at = [getattr(label, axis) + shift for label in found]
        scales.append(np.polyfit(at, [float(label.text.replace(",", "")) for label in found], 1))
    return [(float(np.polyval(scales[0], x)), float(np.polyval(scales[1], y))) for x, y in positions]


def test_a_plot_shows_the_centre_and_the_bars_the_right_way_up() -> None:
    for centre, bars, low, middle, high in (
        ("median", "percentile", 2 * 2.5, 2 * 50.0, 2 * 97.5),
        ("mean", "stddev", 2 * 40.0, 2 * 60.0, 2 * 80.0),
    ):
        drawing = draw(drawn_slots(), "response", centre, bars)  # type: ignore[arg-type]
        dots = [stroke.positions[0] for stroke in drawing.strokes if len(stroke.positions) == 1]
        assert len(dots) == 9
        assert values_of(drawing, dots[:1])[0] == pytest.approx((0, middle), abs=0.5)
        thin = [stroke.positions for stroke in drawing.strokes if stroke.width == 1]
        (bar,) = [points for points in thin if points[0][0] == points[1][0] == dots[0][0]]
        assert [y for _, y in values_of(drawing, list(bar))] == pytest.approx([low, high], abs=0.5)
        lines = [stroke.positions for stroke in drawing.strokes if stroke.width == 2 and len(stroke.positions) > 1]
        # Two legend entries, one whole line, and one line interrupted where there are no samples.
        assert sorted(len(line) for line in lines) == [2, 2, 2, 2, 5]
        assert {"slow (ms)", "fast"} <= {label.text for label in drawing.labels}


def test_throughput_omits_a_partial_last_window() -> None:
    drawing = draw(drawn_slots(), "throughput", "median", "percentile")
    dots = [stroke.positions[0] for stroke in drawing.strokes if len(stroke.positions) == 1]
    rates = [y for _, y in values_of(drawing, dots)]
    assert rates == pytest.approx([10.0, 10.1, 10.2, 10.3, 10.0, 10.1, 0.0, 10.3], abs=0.05)


def test_ticks_are_round_and_enclose_everything() -> None:
    for low, high in ((0, 1), (0, 37.4), (-3.2, 0.1), (0, 0), (0, 1e9), (0, 1e-4)):
        found = ticks(low, high)
        assert found[0] <= low
        assert found[-1] >= high
        assert 2 <= len(found) <= 11
        step = found[1] - found[0]
        assert f"{step:e}"[0] in "125"


def test_java_reads_the_png_back(spark: SparkSession, tmp_path: Path) -> None:
    drawing = draw(drawn_slots(), "response", "median", "percentile")
    (tmp_path / "plot.png").write_bytes(as_png(drawing))
    java: Any = spark._jvm
    image = java.javax.imageio.ImageIO.read(java.java.io.File(str(tmp_path / "plot.png")))
    assert (image.getWidth(), image.getHeight()) == (WIDTH, HEIGHT)

    def colour(x: float, y: float) -> tuple[int, int, int]:
        packed = image.getRGB(int(x), int(HEIGHT - y))
        return (packed >> 16) & 255, (packed >> 8) & 255, packed & 255

    assert colour(2, 2) == (255, 255, 255)
    dots = [stroke for stroke in drawing.strokes if len(stroke.positions) == 1]
    assert {colour(*dot.positions[0]) for dot in dots} == {dot.colour for dot in dots}
    title = next(label for label in drawing.labels if label.text.startswith("Response"))
    ink = [colour(x, y)[0] for x in range(250, 750) for y in range(int(title.y), int(title.y) + 10)]
    assert min(ink) < 100  # the title is drawn


def test_eps_is_plain_postscript_within_its_bounding_box() -> None:
    text = as_eps(draw(drawn_slots(), "response", "median", "percentile")).decode("ascii")
    assert text.startswith("%!PS-Adobe-3.0 EPSF-3.0\n")
    assert f"%%BoundingBox: 0 0 {WIDTH} {HEIGHT}\n" in text
    assert text.endswith("%%EOF\n")
    assert r"(slow \(ms\)) end" in text
    found = re.findall(r"(-?[\d.]+) (-?[\d.]+) (?:moveto|lineto|translate)", text)
    positions = [(float(x), float(y)) for x, y in found]
    assert len(positions) > 50
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in positions)
    assert text.count("gsave") == text.count("grestore")


def test_every_printable_character_has_a_distinct_glyph() -> None:
    shapes = {character: str(letter(character)) for character in map(chr, range(33, 127))}
    same = {character for character, shape in shapes.items() if list(shapes.values()).count(shape) > 1}
    assert same <= {"0", "O"}
    assert letter(" ") == []
    assert letter("ü") == letter("ß") != []


def test_the_verb_draws_and_reports_and_leaves_nothing_behind(
    spark: SparkSession, random_logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.getActiveSession() is not None  # the verb uses the running session, and must not close it here
    monkeypatch.setattr("crescendo.pipeline.spark.session.close_session", lambda _: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = ["logs", str(random_logs[0]), "--type", "CSndReq#OK#", "--type", "BDb", "--window", "200ms"]
    done = CliRunner().invoke(app, [*arguments, "--format", "eps", "--out", str(tmp_path / "plot.eps")])
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    drawn = (tmp_path / "plot.eps").read_text()
    assert drawn.startswith("%!PS-Adobe-3.0 EPSF-3.0")
    assert "(CSndReq#OK#) end" in drawn
    assert "could not read 3 lines" in done.stderr
    assert f"{random_logs[0] / 'deep' / 'er' / 'bad.log'}:2: the duration is not a whole number" in done.stderr
    assert "skipped 1 files" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["plot.eps"]
