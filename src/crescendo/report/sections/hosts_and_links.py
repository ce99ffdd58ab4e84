"""On which hosts did the run take place, and what could their network carry?

One section for runs on hosts of a lab: links, by which means they were impaired, what packets suffered, and the
baseline of the network, measured just before the run, beside what the load needed. Formats facts of the manifest.
"""

from typing import Any

from crescendo.model.experiment import Experiment
from crescendo.model.units import format_ns
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
    return Section("lab", "Hosts and links", _lead(measured, counted, manifest, experiment), None, grids)


def _lead(measured: dict[str, Any], counted: dict[str, Any], manifest: Manifest, experiment: Experiment | None) -> str:
    lead = "System and peers ran on hosts of their own, which reach only each other."
    if counted:
        lead += " Impaired links are TAP links: a process carries every packet, and the seed decides their fates."
    bits = _offered_bps(manifest, experiment)
    if measured and bits:
        name, slowest = min(measured.items(), key=lambda item: float(item[1]["up_bps"]))
        share = bits / float(slowest["up_bps"]) if slowest["up_bps"] else 0.0
        lead += (
            f" The offered payload of {_rate(bits)} is {share:.0%} of what the link of {name} carried upwards"
            " before the run"
        )
        lead += ": rates and losses say as much about this link as about the system." if share > NEAR_LIMIT else "."
    return lead


def _offered_bps(manifest: Manifest, experiment: Experiment | None) -> float:
    """Payload bits per second that senders offer; 0 if it is not known."""
    if experiment is None or not manifest.offered_per_s:
        return 0.0
    sizes = [group.size.largest for group in experiment.workload if group.senders and group.size.file is None]
    return manifest.offered_per_s * max(sizes, default=0) * 8


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
                formats.NOTHING if link is None or link.rate is None else str(link.rate),
                str(facts.get("link", "virtual cable")).partition(":")[0],
            ]
        )
    return Grid(["Host", "address at the end", "began at", "rate", "link"], rows)


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


def _rate(bits_per_second: float) -> str:
    return f"{bits_per_second / 1e6:,.3g} Mbit/s" if bits_per_second < 1e9 else f"{bits_per_second / 1e9:,.3g} Gbit/s"
