"""Results of a run as CSV, JUnit XML, OpenMetrics and OTLP, read back by programs that share no code with ours."""

import base64
import csv
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import duckdb
import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from crescendo.cli.export import export
from crescendo.exporters.registry import exporter_of
from crescendo.exporters.results.otlp import send_otlp
from crescendo.model.errors import ConfigError, CrescendoError, PeerError
from crescendo.record.manifest import read_manifest
from crescendo.record.metric_families import MetricFamily, exposition
from crescendo.record.summary import read_summary
from report_samples import SAMPLES, write_sample


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp("runs") / "failing", SAMPLES["failing"])


def test_every_table_is_a_csv_with_the_same_rows(failing: Path, tmp_path: Path) -> None:
    files = exporter_of("csv")(failing, tmp_path / "csv")
    tables = sorted(path.name for path in (failing / "tables").iterdir())
    assert [path.stem for path in files] == tables
    for path in files:
        parts = failing / "tables" / path.stem / "*.parquet"
        (counted,) = duckdb.sql(f"SELECT count(*) FROM '{parts}'").fetchall()[0]  # noqa: S608
        with path.open(newline="") as file:
            assert len(list(csv.reader(file))) == counted + 1
    with pytest.raises(ConfigError, match="not empty"):
        exporter_of("csv")(failing, tmp_path / "csv")


def test_a_failed_check_is_a_failed_test_case(failing: Path, tmp_path: Path) -> None:
    (path,) = exporter_of("junit")(failing, tmp_path / "junit")
    suite = ElementTree.parse(path).getroot()  # noqa: S314 - written a line ago
    verdict = read_summary(failing).verdict
    failed = [check.metric for check in verdict.checks if check.outcome == "fail"]
    assert failed
    assert suite.attrib["tests"] == str(len(verdict.checks))
    assert [case.attrib["name"] for case in suite if case.find("failure") is not None] == failed


def test_metrics_have_the_numbers_of_the_summary(failing: Path, tmp_path: Path) -> None:
    (path,) = exporter_of("openmetrics")(failing, tmp_path / "om")
    lines = path.read_text().splitlines()
    summary = read_summary(failing)
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    assert values[f'crescendo_run_rate{{run="{summary.run}",kind="sustained"}}'] == pytest.approx(
        summary.rate.sustained
    )
    assert values[f'crescendo_run_verdict{{run="{summary.run}",outcome="fail"}}'] == 1
    assert values[f'crescendo_run_messages{{run="{summary.run}",kind="lost"}}'] == summary.total.lost
    assert lines[-1] == "# EOF"


class Collector(BaseHTTPRequestHandler):
    """Reads requests with the classes that OpenTelemetry generates from its schema."""

    taken: ClassVar[list[tuple[str, ExportMetricsServiceRequest]]] = []
    accounts: ClassVar[list[str | None]] = []
    answer: ClassVar[bytes] = b"{}"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.accounts.append(self.headers.get("authorization"))
        self.taken.append((f"{self.path} {self.headers.get('x-key')}", Parse(body, ExportMetricsServiceRequest())))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_collector_understands_the_metrics_and_every_second(
    failing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, manifest = read_summary(failing), read_manifest(failing)
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")
        assert export("otlp", failing, tmp_path / "otlp", url) == 0
        named = url.replace("//", "//ada:s3cr3t@")
        (tmp_path / "collector.url").write_text(f"{named}\n")
        assert export("otlp", failing, tmp_path / "file", None, str(tmp_path / "collector.url")) == 0
        monkeypatch.setenv("CRESCENDO_TO", named)
        assert export("otlp", failing, tmp_path / "environment") == 0
        basic = "Basic " + base64.b64encode(b"ada:s3cr3t").decode()
        assert Collector.accounts == [None, basic, basic]
        Collector.answer = b'{"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "too old"}}'
        with pytest.raises(PeerError, match="3 points, too old"):
            export("otlp", failing, tmp_path / "again", url)
        for given in ((url, None), (None, str(tmp_path / "collector.url"))):
            with pytest.raises(ConfigError, match="only otlp"):
                export("csv", failing, tmp_path / "csv", *given)
        server.shutdown()
    with pytest.raises(PeerError, match="did not accept it"):
        export("otlp", failing, tmp_path / "gone", url)
    place, request = Collector.taken[0]
    assert place == "/v1/metrics a b"
    (resource,) = request.resource_metrics
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "crescendo"
    assert names["crescendo.experiment"] == manifest.experiment["name"]
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    points = {name: list(metric.gauge.data_points) for name, metric in metrics.items()}
    rates = {_labels(point)["kind"]: point.as_double for point in points["crescendo.run.rate"]}
    assert rates["sustained"] == summary.rate.sustained
    assert metrics["crescendo.run.latency"].unit == "s"
    # Counted by another program from the same table; a second ends where the next begins.
    parts = failing / "tables" / "throughput" / "*.parquet"
    counted = duckdb.sql(f"SELECT role, second, sum(messages) FROM '{parts}' GROUP BY ALL").fetchall()  # noqa: S608
    offset_ns = manifest.clocks[0].realtime_offset_ns if manifest.clocks else 0
    origin_ns = min(phase.start_ns for phase in manifest.phases) + offset_ns
    assert {
        (_labels(one)["role"], one.time_unix_nano, one.as_double) for one in points["crescendo.run.throughput"]
    } == {(role, origin_ns + (second + 1) * 10**9, messages) for role, second, messages in counted}


HARD_TO_REDACT = ["s3cr3t", "s3cr3t/x", "1#s3cr3t", "@s3cr3t", "s3cr3t\t"]


@pytest.mark.parametrize(
    "url", [*(f"http://ada:{each}@127.0.0.1:1" for each in HARD_TO_REDACT), "ada:s3cr3t@h", "ftp://ada:s3cr3t@h"]
)
def test_a_collector_that_cannot_be_reached_is_named_without_its_password(
    url: str, failing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CRESCENDO_TO", url)
    with pytest.raises(CrescendoError) as caught:
        export("otlp", failing, tmp_path / "out")
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value, chain=True)) + capsys.readouterr().err


@pytest.mark.parametrize(
    "headers", ["authorization", "authorization: s3cr3t=", "authorization=s3cr3t%0A", "a=s3cr3t\u20ac"]
)
def test_a_header_that_http_does_not_allow_is_not_repeated(headers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        send_otlp(b"{}", "http://127.0.0.1:1")
    assert "s3cr3t" not in str(caught.value)


def _labels(point: NumberDataPoint) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


def test_a_label_cannot_end_its_line() -> None:
    family = MetricFamily("a b", "gauge", "about\nit")
    family.add(1.5, name='x"\n\\y')
    family.add(float("nan"), name="gone")
    assert exposition([family]) == '# TYPE a_b gauge\n# HELP a_b about\\nit\na_b{name="x\\"\\n\\\\y"} 1.5\n# EOF\n'
