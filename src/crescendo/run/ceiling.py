"""How close did the load generator come to its own limit in this run?

Combines the load that the run carried, the machine it ran on, and that machine's calibration. Returns None when any of
these is unknown: a run on another machine, by another version, or with a payload size that was never calibrated.
"""

from pathlib import Path

import msgspec

from crescendo.calibrate.calibration_file import ROLES, machine_of, read_calibration
from crescendo.calibrate.share import CarriedLoad, percent_of_ceiling
from crescendo.record.manifest import Manifest, read_manifest
from crescendo.record.recorded_experiment import experiment_of
from crescendo.record.summary import Summary
from crescendo.run.measured_throughput import connection_throughput


def with_ceiling(run_dir: Path, summary: Summary) -> Summary:
    """The summary with the generator's share of its ceiling. Writes nothing; the tables must have been written."""
    return msgspec.structs.replace(summary, ceiling_percent=ceiling_percent(run_dir, read_manifest(run_dir)))


def ceiling_percent(run_dir: Path, manifest: Manifest) -> float | None:
    machine = machine_of(manifest.host, manifest.versions)
    calibration = read_calibration(machine)
    load = [peer for peer in manifest.peers if peer.role in ROLES]
    if calibration is None or any(peer.host != machine.name for peer in load):
        return None
    processes = {role: sum(peer.role == role for peer in load) for role in ROLES}
    return percent_of_ceiling(_carried_loads(run_dir, manifest), processes, calibration)


def _carried_loads(run_dir: Path, manifest: Manifest) -> list[CarriedLoad]:
    groups = experiment_of(manifest).workload
    loads: list[CarriedLoad] = []
    for role in ROLES:
        protocols = {group.name: group.spoken_by(role) for group in groups if group.client is None}
        found = connection_throughput(run_dir, manifest, role)
        for connection in manifest.connections:
            # Clients, MLMQ's and foreign ones, are not part of the calibrated load generator.
            known = connection.role == role and connection.group in protocols
            if known and (count := found.messages.get(connection.id)):
                size = found.octets[connection.id] / count
                loads.append(CarriedLoad(protocols[connection.group], role, size, count / found.seconds))
    return loads
