"""Does the log analyzer count correctly, and does it draw what it counted?

Expected numbers come from NumPy; Pillow decodes the PNG, and the names of glyphs give the texts of the EPS.
"""

import csv
import gzip
import io
import math
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from fontTools.agl import toUnicode
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from PIL import Image
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from crescendo.cli.logs import logs
from crescendo.cli.main import app
from crescendo.importers.format import LINE, REASON, SOURCE, ImportResult, UnpackLimits, Workspace
from crescendo.importers.formats.mlmq_log import MLMQ_LOG
from crescendo.importers.sources import find_files
from crescendo.model.errors import ConfigError
from crescendo.pipeline.logs.job import LogQuery, actions, run_query, unreadable_lines
from crescendo.pipeline.logs.plot import HEIGHT, WIDTH, draw, plot
from crescendo.pipeline.logs.points import Bars, Centre, plot_lines
from crescendo.pipeline.logs.texts import as_csv, as_text
from crescendo.pipeline.logs.windows import PERCENTILES, Sample, Slot
from crescendo.run.log_session import read_logs, stage_logs

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
    workspace = Workspace(spark, folder, lambda _: None)
    return read_logs(workspace, stage_logs(workspace, find_files([directory], MLMQ_LOG)[0], UnpackLimits()))


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
        ({"form": "gif"}, "--format gif: write csv, txt, png or eps"),
        ({"form": "png"}, "--format png: a plot needs a file; give one with --out"),
        ({"show": "rate"}, "--show rate: write response or throughput"),
        ({"centre": "mode"}, "--centre mode: write median or mean"),
        ({"bars": "iqr"}, "--bars iqr: write percentile or stddev"),
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


def bars_of(axes: Axes) -> list[list[tuple[float, float]]]:
    """Of each line, the lower and upper ends of its error bars, as Matplotlib draws them."""
    collections = [item for item in axes.collections if isinstance(item, LineCollection)]
    segments = [[segment for segment in item.get_segments() if len(segment)] for item in collections]
    return [[(float(low[1]), float(high[1])) for low, high in bars] for bars in segments]


def lines_of(axes: Axes) -> list[Line2D]:
    """The lines through the points. The caps of error bars are lines, too, without strokes."""
    return [line for line in axes.lines if line.get_linestyle() != "None"]


@pytest.mark.parametrize(
    ("centre", "bars", "low", "middle", "high"),
    [("median", "percentile", 2.5, 50.0, 97.5), ("mean", "stddev", 40.0, 60.0, 80.0)],
)
def test_a_plot_shows_the_centre_and_the_bars_the_right_way_up(
    centre: Centre, bars: Bars, low: float, middle: float, high: float
) -> None:
    (axes,) = draw(plot_lines(drawn_slots(), "response", centre, bars), "title", "unit").axes
    lines = lines_of(axes)
    assert [line.get_xdata()[0] for line in lines] == [0, 0]
    assert [line.get_ydata()[0] for line in lines] == pytest.approx([2 * middle, middle])
    # The second line is interrupted where there are no samples, and has no bar there.
    assert [int(np.isfinite(line.get_ydata()).sum()) for line in lines] == [5, 4]
    assert np.isnan(lines[1].get_ydata()[2])
    slow, fast = bars_of(axes)
    assert slow[0] == pytest.approx((2 * low, 2 * high))
    assert fast[0] == pytest.approx((low, high))
    bottom, top = axes.get_ylim()
    assert bottom == 0
    assert top > max(end for _, end in slow)


def test_throughput_omits_a_partial_last_window_and_has_no_bars() -> None:
    lines = plot_lines(drawn_slots(), "throughput", "median", "percentile")
    assert lines["slow (ms)"].seconds == [0, 10, 20, 30, 40]
    assert lines["slow (ms)"].middles == pytest.approx([10.0, 10.1, 10.2, 10.3, math.nan], nan_ok=True)
    assert lines["fast"].middles == pytest.approx([10.0, 10.1, 0.0, 10.3, math.nan], nan_ok=True)
    assert all(math.isnan(low) for line in lines.values() for low in line.lows)


def test_a_mean_outside_the_percentiles_is_drawn_outside_its_bar() -> None:
    """A single outlier of a thousand values can do that."""
    percentiles = dict.fromkeys(PERCENTILES, 10.0 * MS)
    slots = [Slot("BDb", 0, 10**9, True, Sample(1000, 50.0 * MS, 0.0, 10 * MS, 40_000 * MS, percentiles))]
    (axes,) = draw(plot_lines(slots, "response", "mean", "percentile"), "title", "unit").axes
    assert lines_of(axes)[0].get_ydata()[0] == 50
    assert bars_of(axes) == [[(10, 10)]]


def test_a_deviation_below_zero_is_inside_the_axes() -> None:
    slots = [Slot("BDb", 0, 10**9, True, Sample(9, 5.0 * MS, (8.0 * MS) ** 2, 0, MS, dict.fromkeys(PERCENTILES, 1.0)))]
    (axes,) = draw(plot_lines(slots, "response", "mean", "stddev"), "title", "unit").axes
    assert axes.get_ylim()[0] == pytest.approx(-3)


def test_a_plot_refuses_what_it_cannot_show() -> None:
    def slots(types: int, windows: int, *, whole: bool = True) -> list[Slot]:
        return [Slot(f"type {n}", index, 1, whole, None) for n in range(types) for index in range(windows)]

    with pytest.raises(ConfigError, match=r"--type: 13 lines are too many for a plot"):
        plot_lines(slots(13, 1), "throughput", "median", "percentile")
    with pytest.raises(ConfigError, match=r"--window: 5,001 points are too many for a plot"):
        plot_lines(slots(1, 5001), "throughput", "median", "percentile")
    with pytest.raises(ConfigError, match=r"--window: the logs are shorter than one window"):
        plot_lines(slots(1, 1, whole=False), "throughput", "median", "percentile")
    assert len(plot_lines(slots(12, 2), "throughput", "median", "percentile")) == 12


def test_a_png_has_its_size_both_lines_letters_and_a_grid() -> None:
    image = Image.open(io.BytesIO(plot(drawn_slots(), "response", "median", "percentile", "png")))
    assert (image.format, image.size) == ("PNG", (WIDTH, HEIGHT))
    counts = {colour: count for count, colour in image.convert("RGB").getcolors(WIDTH * HEIGHT) or []}
    assert max(counts, key=lambda colour: counts[colour]) == (255, 255, 255)
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x1E, 0x1E, 0x1E), (0xDD, 0xDD, 0xDD)):
        assert counts.get(colour, 0) > 100


def texts_of(eps: str) -> list[str]:
    """The texts of an EPS, spelled from the names of their glyphs."""
    blocks = re.findall(r"(?:^.* m /\w+ glyphshow\n)+", eps, re.MULTILINE)
    return ["".join(toUnicode(name) for name in re.findall(r"/(\w+) glyphshow", block)) for block in blocks]


def test_eps_has_all_texts_and_its_bounding_box() -> None:
    eps = plot(drawn_slots(), "response", "median", "percentile", "eps").decode("ascii")
    assert eps.startswith("%!PS-Adobe-3.0 EPSF-3.0\n")
    assert f"%%BoundingBox: 0 0 {WIDTH} {HEIGHT}\n" in eps
    assert eps.endswith("showpage\n")
    texts = texts_of(eps)
    assert {"slow (ms)", "fast", "seconds", "milliseconds"} <= set(texts)
    assert "Response time: median, bars from 2.5 % to 97.5 %" in texts
    assert {"0", "10", "40", "50", "200"} <= set(texts)  # numbers of both axes
    assert {"Throughput", "actions per second"} <= set(
        texts_of(plot(drawn_slots(), "throughput", "median", "percentile", "eps").decode("ascii"))
    )


@pytest.mark.parametrize(
    ("name", "drawn"), [("$x_1$", "$x_1$"), ("_db", "_db"), (r"a\b(c", r"a\b(c"), ("Größe", "Größe"), ("日\x01", "??")]
)
def test_any_name_of_an_action_is_drawn_as_it_is(name: str, drawn: str) -> None:
    slots = [replace(slot, type=name) for slot in drawn_slots()[:5]]
    assert drawn in texts_of(plot(slots, "response", "mean", "stddev", "eps").decode("ascii"))


@pytest.mark.parametrize("form", ["png", "eps"])
def test_the_same_logs_give_the_same_bytes_whatever_the_date_and_the_settings(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plot(drawn_slots(), "response", "median", "percentile", form)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    with mpl.rc_context({"font.size": 30, "figure.facecolor": "black", "axes.grid": False}):
        assert plot(drawn_slots(), "response", "median", "percentile", form) == first


def test_matplotlib_is_loaded_for_pictures_only() -> None:
    program = "import sys, crescendo.cli.logs; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_the_verb_draws_and_reports_and_leaves_nothing_behind(
    spark: SparkSession, random_logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = ["logs", str(random_logs[0]), "--type", "CSndReq#OK#", "--type", "BDb", "--window", "200ms"]
    done = CliRunner().invoke(app, [*arguments, "--format", "eps", "--out", str(tmp_path / "plot.eps")])
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    drawn = (tmp_path / "plot.eps").read_text()
    assert drawn.startswith("%!PS-Adobe-3.0 EPSF-3.0")
    assert {"CSndReq#OK#", "BDb"} <= set(texts_of(drawn))
    assert "could not read 3 lines" in done.stderr
    assert f"{random_logs[0] / 'deep' / 'er' / 'bad.log'}:2: the duration is not a whole number" in done.stderr
    assert "skipped 1 files" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["plot.eps"]
    assert spark.range(3).count() == 3  # it used the running session, and left it running
