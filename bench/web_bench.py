"""What does a viewer of the live page cost a run, and how soon are long lists and long reports on the screen?

Viewers: runs with the same load, one after another, with no viewer, one and twenty in turn, so that whatever else the
machine does hits all of them alike. A viewer is a client of the live events, as a browser is. Printed per group: the
medians of the sustained rate, of how long after its time a message left (nothing blocks these senders), and of the
processor time of the server.
First paint: Chromium on a list of a thousand runs, and on the report of two hours.
"""

import contextlib
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from playwright.sync_api import Page, sync_playwright

import crescendo
from bench.generate_recording import Plan, generate
from crescendo.record.summary import read_summary
from crescendo.run.recorded_run import open_recording

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / name) for name in ("", "web", "report")]

ROUNDS = 3
VIEWERS = (0, 1, 20)
MANY = 1000
TWO_HOURS_S = 7200
YAML = """name: watched
system: {kind: relay}
workload: {senders: 2, receivers: 2, rate: 2500, size: 256, protocol: amqp10}
phases: {warmup: 2s, measure: 12s, drain: 5s}
checks: {lost: 0}
"""


def main() -> None:
    from web_lab import web_lab

    with tempfile.TemporaryDirectory(prefix="crescendo-web-bench-") as directory:
        with web_lab(Path(directory) / "runs") as lab, lab.client() as client:
            _measure_viewers(lab, client)
        _measure_paint(Path(directory))


def _measure_viewers(lab: Any, client: httpx.Client) -> None:
    client.post("/api/experiments", json={"text": YAML}).raise_for_status()
    found: dict[int, list[dict[str, float]]] = {count: [] for count in VIEWERS}
    for number in range(ROUNDS):
        for count in VIEWERS if number % 2 == 0 else reversed(VIEWERS):
            found[count].append(_run_with(lab, client, count))
            print(f"round {number + 1}, {count} viewers: {found[count][-1]}", flush=True)
    base = {key: statistics.median(each[key] for each in found[0]) for key in found[0][0]}
    for count, values in found.items():
        for key, before in base.items():
            now = statistics.median(each[key] for each in values)
            change = f"{now / before - 1:+.2%}" if before else "–"
            print(f"{count:3} viewers  {key:24} {now:12.4f}  {change}")


def _run_with(lab: Any, client: httpx.Client, viewers: int) -> dict[str, float]:
    server = psutil.Process(lab.process.pid)
    begun_s, used_s = time.monotonic(), _cpu_s(server)
    job = client.post("/api/jobs", json={"experiment": "watched"}).json()["id"]
    over = threading.Event()
    threads = [threading.Thread(target=_watch, args=(client, job, over), daemon=True) for _ in range(viewers)]
    for thread in threads:
        thread.start()
    while (state := client.get(f"/api/jobs/{job}").json())["state"] in {"queued", "running"}:
        time.sleep(1.0)
    over.set()
    share = (_cpu_s(server) - used_s) / (time.monotonic() - begun_s)
    run = lab.runs / state["run"]
    sent = open_recording(run).messages("sent", ["intended_ns", "sent_ns"]).read_all()
    delay_us = (sent["sent_ns"].to_numpy() - sent["intended_ns"].to_numpy()) / 1000
    return {
        "rate in msg/s": read_summary(run).rate.sustained,
        "own delay p50 in us": float(np.percentile(delay_us, 50)),
        "own delay p99 in us": float(np.percentile(delay_us, 99)),
        "server in % of a core": 100 * share,
    }


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def _watch(client: httpx.Client, job: str, over: threading.Event) -> None:
    with contextlib.suppress(httpx.HTTPError), client.stream("GET", f"/api/jobs/{job}/live", timeout=None) as answer:
        for _ in answer.iter_lines():
            if over.is_set():
                return


def _measure_paint(directory: Path) -> None:
    from chromium_browser import CHROMIUM, QUIET
    from report_samples import SAMPLES, write_sample
    from web_lab import web_lab

    runs = directory / "paint"
    write_sample(runs / "run-0000", SAMPLES["passing"])
    for number in range(1, MANY):
        shutil.copytree(runs / "run-0000", runs / f"run-{number:04d}")
    long = runs / "two-hours"
    generate(long, Plan(TWO_HOURS_S * 5 * 20, rate=20.0))
    crescendo.analyze(long)
    crescendo.report(long)
    print(f"report of two hours: {(long / 'report.html').stat().st_size / 1e6:.1f} MB")
    with web_lab(runs) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(lab.link)
        for name, path in (
            (f"list of {MANY + 1:,} runs", "/runs"),
            ("page of the run of two hours", "/runs/two-hours"),
            ("its report on a page of its own", "/runs/two-hours/report.html"),
        ):
            paints = [_paint(page, lab.origin + path) for _ in range(5)]
            print(f"{name}: first paint after {statistics.median(paints) / 1000:.2f} s (median of 5)")
        browser.close()


def _paint(page: Page, url: str) -> float:
    """Milliseconds from the request to the first content on the screen."""
    page.goto(url, wait_until="load")
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
    return float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
