"""Which share of this machine's calibrated ceiling did a run use?

Arithmetic only: the share of a connection is its rate divided by the ceiling for its protocol, role and size. The
shares of a role are added up and divided by its processes, at most as many as there are cores. The busier role counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crescendo.calibrate.calibration_file import Calibration


@dataclass(frozen=True)
class CarriedLoad:
    """What one connection carried: messages per second, and mean bytes per message."""

    protocol: str
    role: str
    size: float
    rate: float


def percent_of_ceiling(
    loads: Iterable[CarriedLoad], processes: Mapping[str, int], calibration: Calibration
) -> float | None:
    """The share of the ceiling that the busier role used, in percent; None if any part of it was never calibrated."""
    shares = dict.fromkeys(processes, 0.0)
    for load in loads:
        ceiling = calibration.ceiling_of(load.protocol, load.role, load.size)
        if ceiling is None or not ceiling.rate:
            return None
        shares[load.role] += load.rate / ceiling.rate
    cores = max(calibration.machine.cores, 1)
    used = [share / min(processes[role], cores) for role, share in shares.items() if share and processes[role]]
    return 100 * max(used) if used else None
