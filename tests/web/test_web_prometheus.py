"""The dashboard for Grafana against a real Prometheus that scraped a real run."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from web_lab import WebLab, web_lab

DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana-dashboard.json"
YAML = (
    "name: scraped\nsystem: {kind: loopback}\nworkload: {senders: 1, receivers: 1, rate: 250}\n"
    "phases: {warmup: 1s, measure: 8s}\n"
)
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: crescendo
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
"""


def _expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def _until(reached: Callable[[], bool], timeout_s: float = 90.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[WebLab]:
    with web_lab(tmp_path / "runs") as lab:
        yield lab


@pytest.fixture
def prometheus(lab: WebLab, tmp_path: Path) -> Iterator[str]:
    program = shutil.which("prometheus")
    assert program, "prometheus is missing; apt-get install prometheus"
    config = tmp_path / "prometheus.yml"
    target = lab.origin.removeprefix("http://")
    config.write_text(CONFIG.format(token=lab.runs / ".web" / "metrics-token", target=target))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen(
        [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
         f"--web.listen-address={address}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _until(lambda: _is_ready(address))
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait(20)


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/-/ready").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.soak
def test_every_expression_of_the_dashboard_returns_data(lab: WebLab, prometheus: str) -> None:
    begun_s = time.time()
    with lab.client() as client:
        assert client.post("/api/experiments", json={"text": YAML}).status_code == 200
        job = client.post("/api/jobs", json={"experiment": "scraped"}).json()["id"]
        _until(lambda: client.get(f"/api/jobs/{job}").json()["state"] == "done")
    _until(lambda: bool(_range(prometheus, "crescendo_last_run_rate", begun_s)))  # a scrape has seen the result
    expressions = _expressions()
    assert len(expressions) > 8
    for expression in expressions:
        assert _range(prometheus, expression, begun_s), f"nothing: {expression}"
    (series,) = _range(prometheus, 'crescendo_live_rate{role="receiver"}', begun_s)
    rates = [float(value) for _, value in series["values"]]
    begun = next(number for number, rate in enumerate(rates) if rate)
    last = len(rates) - next(number for number, rate in enumerate(reversed(rates)) if rate)
    assert last - begun >= 6
    assert min(rates[begun:last]) > 0  # no zero between two scrapes


def _range(prometheus: str, expression: str, begun_s: float) -> list[dict[str, Any]]:
    query: dict[str, Any] = {"query": expression, "start": begun_s, "end": time.time(), "step": 1}
    answer = httpx.get(f"{prometheus}/api/v1/query_range", params=query).json()
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def test_the_dashboard_asks_only_for_what_a_lab_tells() -> None:
    """Without Prometheus: every name that an expression uses is one that the source declares."""
    source = Path(__file__).parents[2] / "src" / "crescendo"
    declared = "".join(
        path.read_text() for path in (source / "run/live_sample.py", source / "web/routes/metrics_routes.py")
    )
    for expression in _expressions():
        for word in expression.replace("(", " ").replace(")", " ").replace("[", " ").split():
            if word.startswith("crescendo_"):
                assert f'"{word.removesuffix("_total")}"' in declared, word
