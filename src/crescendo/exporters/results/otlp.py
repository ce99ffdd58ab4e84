"""How do the results of a run reach a collector of OpenTelemetry?

`otlp.json` is the body of one request of OTLP over HTTP, encoded as JSON: the metrics of the summary, at the time when
the measure phase ended, and the messages of every second, at theirs. It can also be sent at once. Numbers are those of
the summary and of the table `throughput`; computes nothing else.
"""

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx

from crescendo import __version__
from crescendo.exporters.results.export_results import metrics_of, table_of
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.urls import redact_url
from crescendo.record.manifest import Manifest, read_manifest
from crescendo.record.metric_families import MetricFamily
from crescendo.record.new_directory import new_directory
from crescendo.record.summary import read_summary
from crescendo.record.timeline import SECOND_NS, RunTimeline

FILE = "otlp.json"
PATH = "/v1/metrics"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
"""The variable that OpenTelemetry uses for headers of requests, such as `authorization=Bearer%20x`."""
_TIMEOUT_S = 30.0
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def export_otlp(run_dir: Path, out: Path) -> list[Path]:
    """`otlp.json`, as it would be sent."""
    body = otlp_of(run_dir)
    with new_directory(out) as draft:
        (draft / FILE).write_text(json.dumps(body), encoding="utf-8")
    return [out / FILE]


def otlp_of(run_dir: Path) -> dict[str, Any]:
    """An ExportMetricsServiceRequest."""
    manifest, summary = read_manifest(run_dir), read_summary(run_dir)
    timeline = RunTimeline.of(manifest.phases, manifest.started_ns)
    # Phases are on the conductor's clock; a run without any began at a wall-clock time.
    offset_ns = next(
        (clock.realtime_offset_ns for clock in manifest.clocks if manifest.phases and not clock.offset_ns), 0
    )
    end_ns = (timeline.measure.end_ns if timeline.measure else timeline.origin_ns) + offset_ns
    metrics = [_gauge(family, end_ns) for family in metrics_of(summary) if family.samples]
    if series := _series(run_dir, summary.run, timeline.origin_ns + offset_ns):
        metrics.append(series)
    scope = {"name": "crescendo", "version": __version__}
    resource = {"attributes": _attributes(_resource(manifest))}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"scope": scope, "metrics": metrics}]}]}


def send_otlp(body: bytes, url: str) -> None:
    """Send one request to a collector. PeerError if it does not take everything."""
    target = url if url.rstrip("/").endswith(PATH) else url.rstrip("/") + PATH
    shown, headers = redact_url(url), _headers()
    try:
        answer = httpx.post(
            target,
            content=body,
            headers={"content-type": "application/json", **headers},
            timeout=_TIMEOUT_S,
            trust_env=False,
            follow_redirects=False,
        )
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):  # whose words may repeat a password
        raise ConfigError("--to: this is not an HTTP URL; give one such as http://127.0.0.1:4318") from None
    except httpx.HTTPError as err:
        raise PeerError(f"{shown}: the collector did not accept it: {err}") from err
    if answer.status_code != 200:
        raise PeerError(f"{shown}: the collector answered with status {answer.status_code}")
    refused = _partial(answer)
    if refused:
        raise PeerError(f"{shown}: the collector refused a part: {refused}")


def _partial(answer: httpx.Response) -> str:
    try:
        partial = answer.json().get("partialSuccess") or {}
    except (ValueError, AttributeError):
        return ""
    rejected = int(partial.get("rejectedDataPoints", 0))
    return f"{rejected} points, {str(partial.get('errorMessage', ''))[:200]}" if rejected else ""


def _headers() -> dict[str, str]:
    """Checked here, because a library that refuses a header repeats it, and it may be a secret."""
    pairs = [pair.partition("=") for pair in os.environ.get(HEADERS, "").split(",") if pair.strip()]
    headers = {key.strip(): unquote(value.strip()) for key, _, value in pairs}
    if any(not mark for _, mark, _ in pairs) or not all(map(_HEADER_NAME.fullmatch, headers)):
        raise ConfigError(f"{HEADERS}: write key=value, separated by commas")
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise ConfigError(f"{HEADERS}: a value has characters that are not allowed in an HTTP header")
    return headers


def _gauge(family: MetricFamily, at_ns: int) -> dict[str, Any]:
    points = [_point(value, at_ns, labels) for labels, value in family.samples]
    return {"name": _dotted(family.name), "description": family.about, "unit": _unit(family.name),
            "gauge": {"dataPoints": points}}  # fmt: skip


def _series(run_dir: Path, run: str, origin_ns: int) -> dict[str, Any] | None:
    """Messages of each whole second and role."""
    table = table_of(run_dir, "throughput")
    if table is None:
        return None
    counts: Counter[tuple[int, str]] = Counter()
    columns = (table.column(name).to_pylist() for name in ("second", "role", "messages"))
    for second, role, messages in zip(*columns, strict=True):
        counts[second, role] += messages
    points = [
        _point(float(count), origin_ns + (second + 1) * SECOND_NS, {"run": run, "role": role})
        for (second, role), count in sorted(counts.items())
    ]
    about = "Messages in the second that ends here."
    return {"name": "crescendo.run.throughput", "description": about, "unit": "{message}/s",
            "gauge": {"dataPoints": points}}  # fmt: skip


def _point(value: float, at_ns: int, labels: dict[str, str]) -> dict[str, Any]:
    return {"asDouble": value, "timeUnixNano": str(at_ns), "attributes": _attributes(labels)}


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items() if value]


def _resource(manifest: Manifest) -> dict[str, str]:
    return {
        "service.name": "crescendo",
        "service.version": manifest.versions.get("crescendo", __version__),
        "host.name": str(manifest.host.get("name", "")),
        "crescendo.experiment": str(manifest.experiment.get("name", "")),
    }


def _dotted(name: str) -> str:
    """The name as OpenTelemetry writes it, whose unit is a field of its own."""
    return name.removesuffix("_seconds").replace("_", ".", 2)


def _unit(name: str) -> str:
    if name.endswith("_seconds"):
        return "s"
    return "{message}/s" if name.endswith("_rate") else "1"
