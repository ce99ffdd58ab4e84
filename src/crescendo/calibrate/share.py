"""How much of what this machine's generator can do did a run ask of it?

Arithmetic: each connection takes its rate out of the ceiling for its protocol, role and size; the shares of a role are
added up and divided among its processes, of which no more count than there are cores. The busier role is the answer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crescendo.calibrate.store import Calibration


@dataclass(frozen=True)
class CarriedLoad:
    """What one connection carried: messages a second, and bytes a message on average."""

    protocol: str
    role: str
    size: float
    rate: float


def percent_of_ceiling(
    streams: Iterable[CarriedLoad], processes: Mapping[str, int], calibration: Calibration
) -> float | None:
    """The share of the ceiling that the busier role used, in percent; None when any of it was never calibrated."""
    shares = dict.fromkeys(processes, 0.0)
    for stream in streams:
        ceiling = calibration.ceiling_of(stream.protocol, stream.role, stream.size)
        if ceiling is None or not ceiling.rate:
            return None
        shares[stream.role] += stream.rate / ceiling.rate
    cores = max(calibration.machine.cores, 1)
    used = [share / min(processes[role], cores) for role, share in shares.items() if share and processes[role]]
    return 100 * max(used) if used else None
