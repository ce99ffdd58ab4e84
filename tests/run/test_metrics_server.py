"""What a scraper reads while a real run is under way, and after it."""

import re
import threading
import time
from pathlib import Path

import httpx
import pytest

import crescendo
from crescendo.cli.run_view import with_metrics
from crescendo.model.errors import ConfigError
from crescendo.run.metrics_server import MetricsServer
from crescendo.run.observer import RunObserver

EXPERIMENT = crescendo.experiment_from(
    {
        "name": "scraped",
        "system": {"kind": "loopback"},
        "workload": {"senders": 1, "receivers": 1, "rate": 200},
        "phases": {"warmup": "500ms", "measure": "2s", "drain": "2s"},
    }
)
PAUSE_S = 0.03  # many scrapes between two samples, and between two reports of a peer


def _values(text: str) -> dict[str, float]:
    found = re.findall(r'^(\w+)\{experiment="scraped"(?:,(?:role|state)="(\w+)")?\} (\S+)$', text, re.MULTILINE)
    return {f"{name} {label}".strip(): float(value) for name, label, value in found}


@pytest.mark.quiet
def test_values_never_drop_to_zero_between_scrapes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[dict[str, float]] = []
    over = threading.Event()

    def scrape(url: str) -> None:
        with httpx.Client(trust_env=False) as client:
            while not over.is_set():
                seen.append(_values(client.get(url).text))
                time.sleep(PAUSE_S)

    with with_metrics(RunObserver(), EXPERIMENT.name, 0) as observer:
        url = capfd.readouterr().err.split()[-1]
        scraper = threading.Thread(target=scrape, args=(url,))
        scraper.start()
        result = crescendo.run(EXPERIMENT, out=tmp_path, observer=observer, analyze=False)
        answer = httpx.get(url)
        over.set()
        scraper.join()
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")
        assert httpx.get(url.replace("/metrics", "/")).status_code == 404
    assert result.state.value == "sealed"
    received = [one["crescendo_live_messages_total receiver"] for one in seen if "crescendo_live_rate sender" in one]
    assert received == sorted(received)
    assert received[-1] == _values(answer.text)["crescendo_live_messages_total receiver"] > 200 * 2
    rates = [one.get("crescendo_live_rate receiver", 0.0) for one in seen]
    begun = next(number for number, rate in enumerate(rates) if rate)
    assert len(rates) - begun > 20
    assert min(rates[begun:]) > 0
    assert all("crescendo_live_response_p99_seconds" in one for one in seen[begun + 40 :])
    assert seen[0]["crescendo_live_state starting"] == 1
    assert _values(answer.text)["crescendo_live_state recorded"] == 1
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_port_that_is_taken_is_explained() -> None:
    with MetricsServer("first", 0) as first, pytest.raises(ConfigError, match="give another port, or 0"):
        MetricsServer("second", httpx.URL(first.url).port or 0)
