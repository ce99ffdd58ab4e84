"""The lab as a person uses it: Chromium, the real server, real runs, clicks only."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_reader import CONTRASTS
from crescendo.history.baseline_file import read_baselines
from crescendo.processes.ref import is_alive
from crescendo.record.campaign_journal import write_journal
from crescendo.record.manifest import read_manifest
from crescendo.record.summary import read_summary
from crescendo.run.recorded_run import open_recording
from crescendo.web.jobs import Jobs, JobState
from crescendo.web.web_directory import WebDirectory
from web_lab import WebLab, live_samples, lost_peers, processes_of, web_lab
from web_samples import planted_campaign, planted_run

pytestmark = pytest.mark.timeout(600)  # a run, its analysis and a browser on a machine that does much else
RUN_MS = 240_000
EXAMPLE = Path(__file__).parents[2] / "examples" / "drive_the_web.py"
FAST = {"warmup": "1s", "measure": "15s", "drain": "5s"}  # time to kill the server and to start it on a busy machine


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
    context.set_default_timeout(120_000)
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


@contextmanager
def _program(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program, which does not outlive a test that fails."""
    command = [sys.executable, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


def _listed(page: Page, experiment: str) -> bool:
    page.get_by_role("link", name="History", exact=True).click()
    return page.get_by_role("link", name=experiment, exact=True).count() == 1


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
    text = page.locator("#yaml").input_value()
    assert "performance_log: true" in text

    # Keys are completed from the schema, also below another key.
    page.locator("#yaml").press("Control+End")
    for typed, key in (("see", "seed"), ("peers:\n  send", "senders")):
        page.locator("#yaml").press_sequentially(f"\n{typed}")
        page.locator("#yaml").press("Control+Space")
        expect(page.locator("#completion li").first).to_contain_text(key)
        page.locator("#yaml").press("Enter")
        assert page.locator("#yaml").input_value().endswith(f"{key}: ")
        page.locator("#yaml").press("1")
    page.locator("#yaml").fill(text)
    page.get_by_role("tab", name="Form").click()
    page.get_by_role("button", name="Save and run").click()

    # Watch: figures of the peers, and a change of the rate.
    page.wait_for_url("**/jobs/*")
    page.evaluate(
        "window.shifts = []; new PerformanceObserver((list) => shifts.push(...list.getEntries().filter((one) => "
        "!one.hadRecentInput).map((one) => one.value))).observe({ type: 'layout-shift', buffered: true })"
    )
    expect(page.locator("#received-rate")).to_have_text(re.compile(r"^[1-9]"), timeout=RUN_MS)
    expect(page.locator("#peers")).to_contain_text("sender-0")
    expect(page.locator("#rate-chart .scatterlayer")).to_be_attached()
    page.get_by_label("Rate of each sender").fill("300")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.locator("#events")).to_contain_text("rate change: rate 300", timeout=20_000)
    expect(page.locator("#rate-chart .shapelayer path")).to_have_count(1)
    expect(page.locator("#peers")).to_contain_text(re.compile(r"\d\.\d of 6 s"))  # its lease
    expect(page.locator("#readings")).to_contain_text(re.compile(r"Memory [1-9][\d,]* MiB · Processor \d"))
    assert page.evaluate("shifts.reduce((sum, one) => sum + one, 0)") < 0.05  # nothing jumps while it fills

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
    assert 2 * 250 * 16 < summary.total.sent < 2 * 300 * 16  # of 16 s with warm-up, some at each rate
    expect(page.locator(".subtitle .badge")).to_have_text(summary.outcome_text)
    report = page.frame_locator("#report")
    expect(report.locator("#verdict h2")).to_contain_text(summary.verdict.outcome.value)
    page.locator("#theme").click()
    expect(report.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(report.locator("html")).to_have_attribute("data-theme", "dark")
    page.evaluate("localStorage.removeItem('theme')")
    events = open_recording(run).messages("events").read_all().to_pylist()
    assert [json.loads(event["detail"])["rate"] for event in events if event["kind"] == "rate change"] == [300]


def test_the_log_analyzer_shows_and_downloads_its_plot(lab: WebLab, page: Page) -> None:
    page.get_by_role("link", name="Log analyzer").click()
    page.locator("[name=types]").fill("BDb")
    page.locator("[name=format]").select_option("png")
    page.get_by_role("button", name="Analyse").click()
    expect(page.locator("#result img")).to_be_visible(timeout=RUN_MS)
    _until(lambda: bool(page.evaluate("document.querySelector('#result img').naturalWidth > 300")))
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download", exact=True).click()
    assert Path(downloading.value.path()).read_bytes().startswith(b"\x89PNG")


@pytest.mark.soak  # starts Spark once more
def test_the_log_analyzer_shows_and_downloads_what_the_brokers_logged(lab: WebLab, page: Page) -> None:
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
    with _program(str(EXAMPLE), link, str(tmp_path)) as program:
        _until(lambda: len(Jobs(WebDirectory(lab.runs)).all()) == 2)
        page.get_by_role("link", name="Queue", exact=True).click()
        page.get_by_role("link", name="driven").click()
        expect(page.locator("#received-rate")).to_have_text(re.compile(r"^[1-9]"), timeout=RUN_MS)
        job = lab.runs / ".web" / "jobs" / page.url.rpartition("/")[2]
        receiver = next(peer for peer in live_samples(job)[-1]["peers"] if peer["role"] == "receiver")
        os.kill(receiver["pid"], signal.SIGKILL)
        page.wait_for_url("**/runs/driven-*", timeout=RUN_MS)
        expect(page.locator(".subtitle .badge")).to_have_text("invalid")
        # The run ends at once: whether the live page still draws the loss is a matter of moments. It received the news.
        assert lost_peers(job) == ["receiver-0"]
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


def test_a_run_is_started_and_stopped_with_the_keyboard_alone(lab: WebLab, page: Page) -> None:
    """From an experiment that comes with Crescendo to figures: clone it, run it; then stop it, which keeps it."""
    page.goto(f"{lab.origin}/experiments")
    if page.locator("details[open]").count() == 0:
        _press(page, "quick")
    _press(page, "Clone quick/amqp10")
    page.wait_for_url("**/experiments/quick-amqp10")
    _press(page, "Run")
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#received-rate")).to_have_text(re.compile(r"^[1-9]"), timeout=RUN_MS)
    _press(page, "Stop")
    page.wait_for_url("**/runs/quick-amqp10-*", timeout=RUN_MS)
    run = lab.runs / page.url.rpartition("/")[2]
    expect(page.locator(".subtitle .badge")).to_have_text("interrupted")
    manifest = read_manifest(run)
    assert manifest.state.value == "interrupted"
    assert sum(part.rows for part in manifest.files if part.table == "sent") > 0
    (job,) = [files for files in Jobs(WebDirectory(lab.runs)).all() if files.job.experiment == "quick-amqp10"]
    assert job.process is not None
    _until(lambda: job.process is not None and not is_alive(job.process))
    shutil.rmtree(run)  # the next tests plant a history of this experiment


def _press(page: Page, name: str) -> None:
    """Walk with Tab to what has this name, which must show that it has the focus, and press Enter."""
    page.evaluate("document.activeElement.blur()")
    for _ in range(150):
        page.keyboard.press("Tab")
        found, outlined = page.evaluate(
            "(() => { const one = document.activeElement; return "
            "[one.ariaLabel ?? one.textContent.trim(), getComputedStyle(one).outlineStyle !== 'none'] })()"
        )
        if found == name:
            assert outlined, name
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"Tab does not reach {name}")


def test_a_change_is_found_confirmed_and_dismissed(lab: WebLab, page: Page) -> None:
    for number in range(16):
        planted_run(lab.runs / f"nightly-{number:02d}", number, 1.0 + number % 3 / 500 - 0.2 * (number >= 8))
    _until(lambda: _listed(page, "quick-amqp10"))  # the index follows the disk within a second
    page.get_by_role("link", name="quick-amqp10", exact=True).click()
    change = page.locator(".change", has_text="nightly-08")
    expect(change).to_contain_text("worse")
    expect(change).to_contain_text(re.compile(r"-(19\.9|20\.0)%"))
    expect(page.locator('.chart[data-metric="rate"] .shapelayer path')).to_have_count(1)
    change.get_by_placeholder("What caused it?").fill("a slower disk")
    for verb, state in (("Confirm", "confirmed"), ("Dismiss", "dismissed")):
        change.get_by_role("button", name=verb).click()
        expect(change.locator(".badge.same")).to_have_text(state)
        known = read_baselines(lab.runs / "baselines.json")
        (said,) = getattr(known, state)
        assert (said.metric, said.run, said.note) == ("rate", "nightly-08", "a slower disk")
    assert known.confirmed == []
    change.get_by_role("link", name="nightly-08").click()
    page.wait_for_url("**/runs/nightly-08")


def test_a_campaign_shows_which_factor_matters(lab: WebLab, page: Page) -> None:
    write_journal(lab.runs / "growth-campaign", planted_campaign(lab.runs / "growth-campaign"))
    page.get_by_role("link", name="Campaigns", exact=True).click()
    page.get_by_role("link", name="growth", exact=True).click()
    first = page.locator(".effects li").first
    expect(first).to_contain_text("From 2 to 8, workload.senders raises rate by 3,000 msg/s")
    expect(page.locator(".effects li", has_text="of workload.size on")).to_contain_text("No effect")
    expect(page.locator("table tbody tr")).to_have_count(8)


def test_a_campaign_is_planned_and_waits_in_the_queue(lab: WebLab, page: Page) -> None:
    page.goto(f"{lab.origin}/experiments/first")
    page.get_by_role("link", name="Vary").click()
    expect(page.locator("[name=name]")).to_have_value("first")
    page.locator("[name=factors]").fill("workload.rat: [100, 200]")
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'rate'")
    page.locator("[name=factors]").fill("workload.rate: [100, 200]")
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.locator("#planned")).to_contain_text("6 runs, 2 combinations of levels, about")
    page.locator("[name=start_at]").fill("2099-01-31T22:00")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#rate-form")).to_have_count(0)  # the rate is what the campaign decides
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#state")).to_have_text("cancelled")


def test_groups_are_added_and_removed_in_the_form(lab: WebLab, page: Page) -> None:
    page.goto(f"{lab.origin}/experiments/new")
    for name in ("orders", "mail"):
        page.get_by_role("button", name="Add a group").click()
        page.locator("[data-field=group]").last.fill(name)
    page.locator("[data-field=senders]").last.fill("7")
    page.get_by_role("button", name="Remove this group").first.click()
    page.locator("[name=group]").fill("first")
    page.get_by_role("tab", name="YAML").click()
    expect(page.locator("#yaml")).to_have_value(re.compile(r"- name: first\n[\s\S]*- name: mail\n[\s\S]*senders: 7\n"))
    assert "orders" not in page.locator("#yaml").input_value()
    page.locator("#yaml").fill(page.locator("#yaml").input_value().replace("senders: 7", "senders: 8"))
    page.get_by_role("tab", name="Form").click()
    expect(page.locator("[data-field=senders]")).to_have_value("8")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_their_window_and_can_be_read(lab: WebLab, page: Page, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    job = Jobs(WebDirectory(lab.runs)).add("first", "name: first\n", by="nobody", not_before_ns=2**62)
    for path in ("/experiments", "/experiments/new", "/runs", "/runs/nightly-08", "/jobs", f"/jobs/{job}",
                 "/clusters", "/access", "/compare", "/history", "/history?experiment=quick-amqp10", "/campaigns",
                 "/campaigns/new", "/campaigns/growth-campaign"):  # fmt: skip
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(lab.origin + path)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, a, input:not([type=hidden]), select, textarea')].filter((one) => "
            "!(one.labels?.length || one.ariaLabel || one.textContent.trim() || one.title)).map((one) => one.outerHTML)"
        )
        assert unnamed == [], path
        assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == [], path
