"""The lab as a person uses it: Chromium, the real server, real runs, clicks only."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from crescendo.record.manifest import read_manifest
from crescendo.record.summary import read_summary
from crescendo.run.recorded_run import open_recording
from crescendo.web.jobs import Jobs, JobState
from crescendo.web.web_directory import WebDirectory
from web_lab import WebLab, processes_of, web_lab

RUN_MS = 120_000
EXAMPLE = Path(__file__).parents[2] / "examples" / "drive_the_web.py"
FAST = {"warmup": "1s", "measure": "8s", "drain": "5s"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebLab]:
    directory = tmp_path_factory.mktemp("lab") / "runs"
    with web_lab(directory) as lab:
        yield lab
    assert processes_of(directory) == []


@pytest.fixture(scope="module")
def page(lab: WebLab, chromium: Browser) -> Iterator[Page]:
    """One person at one browser, who notices every error on the console."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.goto(lab.link)
    yield page
    context.close()
    # While the server was down, requests failed; everything else would be a mistake of ours.
    assert [text for text in troubles if not re.search("ERR_|400", text)] == []


def _until(reached: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def _runs(lab: WebLab) -> list[Path]:
    return sorted(path.parent for path in lab.runs.glob("*/manifest.json"))


def test_a_person_defines_runs_and_watches_an_experiment_while_the_server_is_killed(lab: WebLab, page: Page) -> None:
    expect(page.get_by_role("heading", name="Measure something in a minute")).to_be_visible()
    page.locator(".head").get_by_role("link", name="New experiment").click()

    # A mistake is explained as on the command line, beside the form; nothing is lost.
    page.locator("[name=name]").fill("first")
    page.locator("[name=measure]").fill("5")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("needs a unit: write 5s for seconds")
    for name, value in FAST.items():
        page.locator(f"[name={name}]").fill(value)
    page.locator("[name=settings]").fill("performance_log: true")
    page.get_by_role("tab", name="YAML").click()
    expect(page.locator("#yaml")).to_be_visible()
    assert "performance_log: true" in page.locator("#yaml").input_value()
    page.get_by_role("tab", name="Form").click()
    page.get_by_role("button", name="Save and run").click()

    # Watch: figures of the peers, and a change of the rate.
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#received-rate")).to_have_text(re.compile(r"^[1-9]"), timeout=RUN_MS)
    expect(page.locator("#peers")).to_contain_text("sender-0")
    expect(page.locator("#rate-chart .scatterlayer")).to_be_attached()
    page.get_by_label("Rate of each sender").fill("300")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.locator("#events")).to_contain_text("rate change: rate 300", timeout=20_000)

    # The server dies in mid-run. The run goes on, the browser reconnects by itself, and the verdict comes.
    lab.kill()
    expect(page.locator("#said")).to_contain_text("the run goes on", timeout=20_000)
    (job,) = Jobs(WebDirectory(lab.runs)).all()
    assert job.state is JobState.RUNNING
    lab.start()
    page.wait_for_url("**/runs/first-*", timeout=RUN_MS)
    (run,) = _runs(lab)
    assert [files.state for files in Jobs(WebDirectory(lab.runs)).all()] == [JobState.DONE]
    assert read_manifest(run).state.value == "sealed"
    summary = read_summary(run)
    assert 2 * 250 * 9 < summary.total.sent < 2 * 300 * 9
    expect(page.locator(".subtitle .badge")).to_have_text(summary.outcome_text)
    report = page.frame_locator("#report")
    expect(report.locator("#verdict h2")).to_contain_text(summary.verdict.outcome.value)
    events = open_recording(run).messages("events").read_all().to_pylist()
    assert [json.loads(event["detail"])["rate"] for event in events if event["kind"] == "rate change"] == [300]


def test_the_log_analyzer_shows_and_downloads_what_the_brokers_logged(lab: WebLab, page: Page) -> None:
    page.get_by_role("link", name="Log analyzer").click()
    page.locator("[name=types]").fill("BDb")
    page.locator("[name=format]").select_option("csv")
    page.get_by_role("button", name="Analyse").click()
    expect(page.locator("#result pre")).to_be_visible(timeout=RUN_MS)
    shown = page.locator("#result pre").inner_text()
    rows = list(csv.DictReader(io.StringIO(shown), delimiter=";"))
    (run,) = _runs(lab)
    lines = [
        line.split(";")[2]
        for path in (run / "logs").glob("*")
        for line in path.read_text(errors="replace").splitlines()
        if line.count(";") >= 3
    ]
    counted = sum(name.startswith("BDb") for name in lines)
    assert sum(int(row["Count"] or 0) for row in rows) == counted > 100
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download", exact=True).click()
    assert Path(downloading.value.path()).read_text().split() == shown.split()


def test_a_zip_of_everything_can_be_opened_and_is_the_recording(lab: WebLab, page: Page) -> None:
    (run,) = _runs(lab)
    page.get_by_role("link", name=run.name, exact=True).click()
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Everything").click()
    with zipfile.ZipFile(downloading.value.path()) as archive:
        assert archive.testzip() is None
        packed = {name.removeprefix(f"{run.name}/") for name in archive.namelist()}
        assert packed == {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
        assert archive.read(f"{run.name}/report.html") == (run / "report.html").read_bytes()


def test_a_program_drives_the_lab_and_a_lost_peer_shows_and_is_not_a_pass(
    lab: WebLab, page: Page, tmp_path: Path
) -> None:
    page.get_by_role("link", name="Access", exact=True).click()
    page.get_by_role("button", name="Make a link").click()
    expect(page.locator("#link")).to_be_visible()
    link = page.locator("#link").inner_text()
    program = subprocess.Popen(
        [sys.executable, str(EXAMPLE), link, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    _until(lambda: len(list((lab.runs / ".web" / "jobs").iterdir())) == 2)
    page.get_by_role("link", name="Queue", exact=True).click()
    page.get_by_role("link", name="driven").click()
    expect(page.locator("#received-rate")).to_have_text(re.compile(r"^[1-9]"), timeout=RUN_MS)
    job = lab.runs / ".web" / "jobs" / page.url.rpartition("/")[2]
    samples = [json.loads(line) for line in (job / "live.jsonl").read_text().splitlines() if '"sample"' in line]
    os.kill(next(peer["pid"] for peer in samples[-1]["peers"] if peer["role"] == "receiver"), signal.SIGKILL)
    page.wait_for_url("**/runs/driven-*", timeout=RUN_MS)
    expect(page.locator(".subtitle .badge")).to_have_text("invalid")
    # The run ends at once, so whether the live page still draws the loss is a matter of moments; it was told of it.
    told = [json.loads(line) for line in (job / "live.jsonl").read_text().splitlines()]
    assert [line["detail"]["peer"] for line in told if line.get("event") in {"lost", "failed"}] == ["receiver-0"]
    printed, _ = program.communicate(timeout=60)
    assert re.search(r": [1-9]\d* msg/s", printed)
    assert printed.splitlines()[-1].startswith(f"{page.url.rpartition('/')[2]}: invalid; ")
    (archive,) = tmp_path.glob("*.zip")
    assert zipfile.ZipFile(archive).testzip() is None


def test_two_runs_are_compared_and_a_clone_is_archived(lab: WebLab, page: Page) -> None:
    page.get_by_role("link", name="Runs", exact=True).click()
    for run in _runs(lab):
        page.get_by_label(f"Compare {run.name}").check()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", name="Side by side")).to_be_visible(timeout=20_000)
    expect(page.locator("#compared tbody tr").first).to_contain_text("rate")
    expect(page.locator("#compare-chart .scatterlayer")).to_be_attached()
    page.get_by_role("link", name="Experiments", exact=True).click()
    expect(page.get_by_role("article").filter(has_text="driven").locator(".strip a.invalid")).to_have_count(1)
    page.get_by_role("button", name="Clone first", exact=True).click()
    page.wait_for_url("**/experiments/first-2")
    page.get_by_role("link", name="Experiments", exact=True).click()
    page.get_by_role("button", name="Archive first-2").click()
    expect(page.get_by_role("article")).to_have_count(2)
    page.get_by_role("link", name="Archive", exact=True).click()
    expect(page.get_by_role("article").filter(has_text="first-2")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_their_window_and_can_be_read(lab: WebLab, page: Page, theme: str, width: int) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 800})
    for path in ("/experiments", "/experiments/new", "/runs", "/jobs", "/access", "/compare"):
        page.goto(lab.origin + path)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, a, input:not([type=hidden]), select, textarea')].filter((one) => "
            "!(one.labels?.length || one.ariaLabel || one.textContent.trim() || one.title)).map((one) => one.outerHTML)"
        )
        assert unnamed == [], path
