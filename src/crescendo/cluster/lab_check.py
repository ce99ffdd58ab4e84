"""Do the peers of a cluster answer as a run will need them to?

Asks from where the conductor runs: each must answer on the control plane with this version, let its files be fetched on
its port, and let its clock be compared. What does not is one sentence per peer, so that it is found before a run and
not during it. Changes nothing.
"""

import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass

from crescendo import __version__
from crescendo.control.notes import Identity
from crescendo.control.request_payloads import PeerOffer, Pong
from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError, PeerError
from crescendo.net.sockets import connect
from crescendo.run.host_clocks import ClockAddress, HostClocks, clock_addresses
from crescendo.run.lab_client import LabClient

_PING_S = 1.0


@dataclass(frozen=True)
class AnsweringPeer:
    """What one standing peer says, and what was found when it was asked."""

    identity: Identity
    state: str
    run: str
    version: str
    cores: int
    clock_offset_ns: int | None  # its host's clock minus the conductor's; None: the same clock, or unknown
    clock_bound_ns: int | None
    faults: tuple[str, ...]


def check_lab(url: str, lab: Lab, expected: Collection[str], timeout_s: float) -> tuple[list[AnsweringPeer], list[str]]:
    """Every standing peer that answers, and which of the expected ones do not."""
    with LabClient(url, lab, "cluster") as client:
        seen: dict[str, tuple[Identity, Pong]] = {}
        deadline_s = time.monotonic() + timeout_s
        while True:
            for identity, pong, _ in client.ping(lab.scope, _PING_S, enough=len(expected) or None):
                seen[identity.id] = (identity, pong)
            missing = sorted(set(expected) - seen.keys())
            if not missing or time.monotonic() > deadline_s:
                break
    return [_checked(identity, pong, lab) for identity, pong in seen.values()], missing


def _checked(identity: Identity, pong: Pong, lab: Lab) -> AnsweringPeer:
    offer = pong.offer
    faults = []
    offset_ns = bound_ns = None
    if offer is None or offer.version != __version__:
        version = "no version" if offer is None else f"version {offer.version}"
        faults.append(f"has {version}, and this is {__version__}")
    else:
        try:
            connect(offer.address, offer.files_port).close()
        except PeerError:
            faults.append(f"its files cannot be fetched: TCP port {offer.files_port} of {offer.address} is closed")
        try:
            offset_ns, bound_ns = _clock(identity, offer, lab)
        except ConfigError as err:
            faults.append(str(err))
    return AnsweringPeer(
        identity,
        pong.state,
        pong.run,
        "" if offer is None else offer.version,
        0 if offer is None else offer.cores,
        offset_ns,
        bound_ns,
        tuple(faults),
    )


def _clock(identity: Identity, offer: PeerOffer, lab: Lab) -> tuple[int | None, int | None]:
    asked = ClockAddress(identity.host, offer.clock, offer.address, offer.clock_port, offer.realtime_offset_ns)
    with contextlib.closing(HostClocks(clock_addresses([asked]), lab.scope)) as clocks:
        if not clocks.differ:
            return None, None
        (found,) = clocks.finish()
        return -found.offset_ns, found.bound_ns
