"""The section about hosts and links: baseline, counts, and whether the link was the limit."""

from typing import Any

import pytest

from crescendo.model.experiment_file import experiment_from
from crescendo.record.manifest import ConnectionRecord, Manifest
from crescendo.report.sections.hosts_and_links import hosts_and_links

BASELINE = {"up_bps": 20e6, "down_bps": 19e6, "both_up_bps": 18e6, "both_down_bps": 5e6, "round_trip_ns": 120_000}
COUNTS = {"frames": 1000, "lost": 10, "duplicated": 0, "overtook": 0, "corrupted": 0}


def manifest(lab: dict[str, Any], offered_per_s: float) -> Manifest:
    senders = [
        ConnectionRecord(number, "sender", f"sender-{number}", group, "queue://x", "x")
        for number, group in enumerate(("main", "other"))
    ]
    return Manifest("run", 1, {}, [], 0, lab=lab, offered_per_s=offered_per_s, connections=senders)


@pytest.mark.parametrize(("offered", "near"), [(100.0, False), (400.0, True)])
def test_a_load_near_the_limit_of_its_link_is_said_to_be_so(offered: float, near: bool) -> None:
    experiment = experiment_from(
        {
            "name": "x",
            "workload": [
                {"name": "main", "address": "queue://a", "rate": offered, "size": 6250},  # 50,000 bits: 5 or 20 Mbit/s
                {"name": "other", "address": "queue://b", "rate": offered, "size": "1MiB"},  # not from the station
            ],
            "lab": {"system": "server", "hosts": {"server": {}, "station": {"rate": "20Mbit", "rate_down": "1Mbit"}}},
            "peers": {"senders": [{"on": "station"}, {"on": "server"}]},
        }
    )
    hosts = {
        "server": {"address": "10.77.0.2"},
        "station": {
            "address": "10.77.0.3", "baseline": BASELINE, "link": "TAP link: a process",
            "packets": {"up": COUNTS, "down": COUNTS},
        },
    }  # fmt: skip
    section = hosts_and_links(manifest({"hosts": hosts}, 2 * offered), experiment)
    assert section is not None
    assert f"{5 * offered / 100:.0f} Mbit/s that station offered is {offered / 4:.0f}% of" in section.lead
    assert ("as much about this link" in section.lead) is near
    assert section.grids["Hosts"].rows[1] == ["station", "10.77.0.3", "cable", "20Mbit up, 1Mbit down", "TAP link"]
    assert section.grids["Network before the run"].rows == [
        ["station", "20 Mbit/s", "19 Mbit/s", "18 Mbit/s", "5 Mbit/s", "120 µs"]
    ]
    assert section.grids["Packets of impaired links"].rows[0] == ["station, up", "1,000", "10", "0", "0", "0"]


def test_a_tcp_link_says_why_it_is_one_and_what_it_cannot_show() -> None:
    passed = {"up_bytes": 5000, "down_bytes": 70, "connections": 3, "reset": 1, "half_open": 2}
    station = {"address": "10.77.0.3", "link": "TCP link: a process", "passed": passed, "why_no_tap": "no such device"}
    section = hosts_and_links(manifest({"hosts": {"station": station}}, 1.0), None)
    assert section is not None
    assert "are TCP links, because there is no TAP interface here (no such device)" in section.lead
    assert "this says nothing about how TCP recovers" in section.lead
    assert section.grids["Hosts"].rows[0][-1] == "TCP link"
    assert section.grids["Connections of TCP links"].rows == [["station", "3", "1", "2", "5,000", "70"]]


def test_a_run_without_a_lab_has_no_such_section() -> None:
    assert hosts_and_links(manifest({}, 1.0), None) is None
