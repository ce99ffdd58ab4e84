"""What time of the conductor's clock is a time that a peer wrote?

As the manifest maps the clock of the peer's host. A peer that is not listed, or whose host shares the conductor's
clock, is taken at its word.
"""

from crescendo.record.manifest import Clock, Manifest


def is_shifted(clock: Clock) -> bool:
    """Whether a host's clock is not the conductor's."""
    return bool(clock.offset_ns or clock.drift_ppb)


def to_conductors_clock(clock: Clock, host_ns: int) -> int:
    return host_ns + clock.offset_ns + round((host_ns - clock.reference_ns) * clock.drift_ppb * 1e-9)


class PeerTimes:
    """Maps the times of the peers of one recording."""

    def __init__(self, manifest: Manifest) -> None:
        clocks = {clock.host: clock for clock in manifest.clocks if is_shifted(clock)}
        self._clocks = {peer.id: clocks[peer.host] for peer in manifest.peers if peer.host in clocks}

    def to_ours(self, peer: str, peer_ns: int) -> int:
        clock = self._clocks.get(peer)
        return peer_ns if clock is None else to_conductors_clock(clock, peer_ns)
