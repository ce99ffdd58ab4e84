"""Runs on the hosts of an inventory, started and followed in a browser."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from chromium_browser import CHROMIUM, QUIET
from crescendo.lab.host_network import HostNetwork
from crescendo.model.errors import ConfigError
from crescendo.record.manifest import read_manifest
from crescendo.record.summary import read_summary
from crescendo.web.known_clusters import KnownClusters
from crescendo.web.run_steps import CLUSTER_STEPS, RunSteps
from lab_hosts import needs_namespaces
from web_cluster import PEER_HOSTS, WebCluster
from web_lab import WebLab, live_samples, lost_peers, web_lab

pytestmark = [
    needs_namespaces,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="sshd changes accounts, which needs root"),
]
RUN_MS = 240_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebCluster]:
    with HostNetwork() as network:
        yield WebCluster(network, tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def lab(cluster: WebCluster) -> Iterator[WebLab]:
    prefix = tuple(cluster.desk.command([]))
    with web_lab(cluster.directory / "runs", "--cluster", str(cluster.file), prefix=prefix) as lab:
        yield lab


@pytest.fixture(scope="module")
def page(cluster: WebCluster, lab: WebLab) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=cluster.browser(CHROMIUM), args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(lab.link)
        yield page
        browser.close()


def test_a_peer_that_is_killed_on_its_host_shows_and_the_run_is_invalid(
    cluster: WebCluster, lab: WebLab, page: Page
) -> None:
    page.locator(".head").get_by_role("link", name="New experiment").click()
    page.locator("[name=name]").fill("pair")
    page.locator("[name=system]").select_option("url")
    page.locator("[name=url]").fill(f"amqp://{cluster.desk.address}:5672")
    page.locator("[name=protocol]").select_option("amqp10")
    for name, value in {"senders": "1", "receivers": "1", "warmup": "1s", "measure": "120s", "drain": "3s"}.items():
        page.locator(f"[name={name}]").fill(value)
    for box in page.locator("[name=inspect]:checked").all():
        box.uncheck()
    page.get_by_label("Where").select_option("pair")
    page.get_by_role("button", name="Save and run").click()
    page.wait_for_url("**/jobs/*")

    # Each step has its state and its log.
    watch = page.locator('[data-step="watch"]')
    expect(watch).to_have_class(re.compile("running"), timeout=RUN_MS)
    for step, said in (("provision", "two machines are here"), ("build", "built 1.0"), ("copy", "looking at 2 host")):
        button = page.locator(f'[data-step="{step}"]')
        expect(button).to_have_class(re.compile("done"))
        button.click()
        expect(page.locator("#log")).to_contain_text(said)
    expect(page.locator("#received-rate")).to_have_text(re.compile(r"^[1-9]"), timeout=RUN_MS)
    for host in PEER_HOSTS:
        expect(page.locator("#peers")).to_contain_text(host)

    job = lab.runs / ".web" / "jobs" / page.url.rpartition("/")[2]
    (victim,) = (peer for peer in live_samples(job)[-1]["peers"] if peer["role"] == "receiver")
    os.kill(victim["pid"], signal.SIGKILL)
    page.wait_for_url("**/runs/pair-*", timeout=RUN_MS)
    expect(page.locator(".subtitle .badge")).to_have_text("invalid")
    assert victim["id"] in lost_peers(job)  # the page moves on at once, so what it drew is a matter of moments

    page.get_by_role("link", name="Clusters", exact=True).click()
    page.get_by_role("button", name="Take down").click()
    expect(page.locator(".said").nth(1)).to_have_text("2 peer(s) ended, nothing is left", timeout=RUN_MS)


@pytest.mark.soak
def test_the_next_run_collects_from_both_hosts(cluster: WebCluster, lab: WebLab, page: Page) -> None:
    page.get_by_role("link", name="Experiments", exact=True).click()
    page.get_by_role("link", name="pair", exact=True).click()
    page.locator("[name=measure]").fill("5s")
    page.get_by_label("Where").select_option("pair")
    page.get_by_role("button", name="Save and run").click()
    page.wait_for_url("**/runs/pair-*", timeout=RUN_MS)
    run = lab.runs / page.url.rpartition("/")[2]
    manifest, summary = read_manifest(run), read_summary(run)
    assert manifest.state.value == "sealed"
    assert summary.total.delivered == summary.total.sent > 250 * 5
    assert {peer.host for peer in manifest.peers} == set(PEER_HOSTS)
    assert {part.peer for part in manifest.files} >= {peer.id for peer in manifest.peers}
    page.get_by_role("link", name="Clusters", exact=True).click()
    page.get_by_role("button", name="Look").click()
    expect(page.locator(".said").first).to_have_text("sender-s1: free, receiver-r1: free", timeout=RUN_MS)


def test_a_cluster_must_name_its_broker_and_its_token(cluster: WebCluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names control_file and token_file"):
        KnownClusters([cluster.directory / "hosts.ini"])
    with pytest.raises(ConfigError, match="no cluster is called 'other'; this server knows pair"):
        KnownClusters([cluster.file]).path("other")


def test_steps_that_had_nothing_to_do_are_skipped_and_one_that_failed_is_the_last(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.write_text("before")
    steps = RunSteps(CLUSTER_STEPS, output)
    assert steps.begin_for("looking at 2 host(s)")
    output.write_text("before, looked")
    assert not steps.begin_for("packing wheels")
    assert not steps.begin_for("something else")
    steps.finish(failed=True)
    found = {one["name"]: one for one in steps.document}
    assert [one["state"] for one in steps.document] == ["skipped", "skipped", "failed", *["waiting"] * 4]
    assert (found["copy"]["log_from"], found["copy"]["log_to"]) == (6, 14)
