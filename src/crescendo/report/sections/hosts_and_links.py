"""On which hosts did the run take place, and what could their network carry?

One section for runs on hosts of a lab: links, by which means they were impaired, what packets suffered, and the
baseline of the network, measured just before the run, beside what the load needed. Formats facts of the manifest.
"""

from typing import Any

from crescendo.model.experiment import Experiment
from crescendo.model.lab_network import LabLink
from crescendo.model.units import LineRate, format_ns
from crescendo.record.manifest import Manifest
from crescendo.report import formats
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.section import Section

NEAR_LIMIT = 0.8
"""Of the baseline: a load above this is judged against the network as much as against the system."""


def hosts_and_links(manifest: Manifest, experiment: Experiment | None) -> Section | None:
    """None for a run without a lab."""
    hosts: dict[str, Any] = manifest.lab.get("hosts", {})
    if not hosts:
        return None
    grids = {"Hosts": _hosts(hosts, experiment)}
    measured = {name: facts["baseline"] for name, facts in hosts.items() if "baseline" in facts}
    if measured:
        grids["Network before the run"] = _baselines(measured)
    counted = {name: facts["packets"] for name, facts in hosts.items() if "packets" in facts}
    if counted:
        grids["Packets of impaired links"] = _packets(counted)
    passed = {name: facts for name, facts in hosts.items() if "passed" in facts}
    if passed:
        grids["Connections of TCP links"] = _passed(passed)
    lead = _lead(hosts, measured, manifest, experiment)
    return Section("lab", "Hosts and links", lead, None, grids)


def _lead(hosts: dict[str, Any], measured: dict[str, Any], manifest: Manifest, experiment: Experiment | None) -> str:
    lead = "System and peers ran on hosts of their own, which reach only each other."
    without_tap = [facts["why_no_tap"] for facts in hosts.values() if "passed" in facts]
    if without_tap:
        lead += (
            f" Impaired links are TCP links, because there is no TAP interface here ({without_tap[0]}): a process"
            " passes bytes on with a delay and a rate. No packet was lost or repeated, so this says nothing about how"
            " TCP recovers."
        )
    if any("packets" in facts for facts in hosts.values()):
        lead += " Impaired links are TAP links: a process carries every packet, and the seed decides which are lost."
    bits = _offered_bps(manifest, experiment)
    shares = {name: bits[name] / measured[name]["up_bps"] for name in measured if bits.get(name)}
    if shares:
        name = max(shares, key=lambda host: shares[host])
        lead += (
            f" The payload of {_rate(bits[name])} that {name} offered is {shares[name]:.0%} of what its link carried"
            " upwards before the run"
        )
        near = shares[name] > NEAR_LIMIT
        lead += ": rates and losses say as much about this link as about the system." if near else "."
    return lead


def _offered_bps(manifest: Manifest, experiment: Experiment | None) -> dict[str, float]:
    """Payload bits per second that the senders of each host offer, as far as that is known."""
    if experiment is None or experiment.lab is None:
        return {}
    groups = {group.name: group for group in experiment.workload}
    senders = [one for one in manifest.connections if one.role == "sender"]
    planned = sum(groups[one.group].rate for one in senders)
    if not planned or not manifest.offered_per_s:
        return {}
    places = experiment.peers.places("sender")
    bits: dict[str, float] = {}
    for one in senders:
        group, host = groups[one.group], places[int(one.peer.rpartition("-")[2])] or experiment.lab.system
        size = 0 if group.size.file is not None else group.size.largest
        bits[host] = bits.get(host, 0.0) + group.rate / planned * manifest.offered_per_s * size * 8
    return bits


def _hosts(hosts: dict[str, Any], experiment: Experiment | None) -> Grid:
    lab = None if experiment is None else experiment.lab
    rows = []
    for name, facts in hosts.items():
        link = None if lab is None else lab.hosts.get(name)
        rows.append(
            [
                name + (" (system)" if lab is not None and lab.system == name else ""),
                str(facts.get("address", formats.NOTHING)),
                formats.NOTHING if link is None else link.access_point or "cable",
                formats.NOTHING if link is None else _limits(link),
                str(facts.get("link", "virtual cable")).partition(":")[0],
            ]
        )
    return Grid(["Host", "address at the end", "began at", "rate", "link"], rows)


def _limits(link: LabLink) -> str:
    up, down = (formats.NOTHING if not rate else str(LineRate(rate)) for rate in link.rates_bps)
    return up if up == down else f"{up} up, {down} down"


def _baselines(measured: dict[str, Any]) -> Grid:
    rows = [
        [name, *(_rate(found[key]) for key in ("up_bps", "down_bps", "both_up_bps", "both_down_bps")),
         format_ns(found["round_trip_ns"])]
        for name, found in measured.items()
    ]  # fmt: skip
    return Grid(["Host", "up alone", "down alone", "up, both at once", "down, both at once", "round trip"], rows)


def _packets(counted: dict[str, Any]) -> Grid:
    kinds = ("frames", "lost", "duplicated", "overtook", "corrupted")
    rows = [
        [f"{name}, {direction}", *(formats.count(int(found[direction].get(kind, 0))) for kind in kinds)]
        for name, found in counted.items()
        for direction in ("up", "down")
    ]
    return Grid(["Link", *kinds], rows)


def _passed(hosts: dict[str, Any]) -> Grid:
    kinds = {
        "connections": "connections", "reset": "reset", "half_open": "left half-open", "up_bytes": "bytes up",
        "down_bytes": "bytes down",
    }  # fmt: skip
    rows = [
        [name, *(formats.count(int(facts["passed"].get(kind, 0))) for kind in kinds)] for name, facts in hosts.items()
    ]
    return Grid(["Link", *kinds.values()], rows)


def _rate(bits_per_second: float) -> str:
    return f"{bits_per_second / 1e6:,.3g} Mbit/s" if bits_per_second < 1e9 else f"{bits_per_second / 1e9:,.3g} Gbit/s"
