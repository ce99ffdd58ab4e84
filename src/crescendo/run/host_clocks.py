"""How do the clocks of the hosts of a run relate to the conductor's?

Hosts that share its clock need no comparison. With every other one, bursts of packets are exchanged before the run,
every two seconds during it, and after it; a line through them maps times of that host to ours, with a bound. A host
that does not answer is refused before the run starts. Changes no recorded time: the pipeline does, with what is in the
manifest.
"""

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crescendo.control.clock_exchange import ClockProbe, clock_id
from crescendo.control.trust import NoteScope
from crescendo.model.clock_estimate import ClockEstimate, ClockSample, best_of, estimate
from crescendo.model.errors import ConfigError, PeerError
from crescendo.record.manifest import Clock

_EVERY_S = 2.0
_MAX_SAMPLES = 500
_EDGE_BURSTS = 5  # before and after the run, where the bound is decided, the best of several bursts
_PEER_TIMES = ("t0_ns", "from_ns")
"""The times in requests, which a peer must get on its own clock."""


@dataclass(frozen=True)
class ClockAddress:
    """Where the clock of a host is asked."""

    host: str
    clock: str  # equal for hosts that share one
    address: str
    port: int
    realtime_offset_ns: int


class HostClocks:
    """The clocks of the hosts that take part in one run. Use as a context manager, or call close()."""

    def __init__(self, hosts: Mapping[str, ClockAddress], scope: NoteScope) -> None:
        """Raises ConfigError if the clock of a host cannot be compared with ours."""
        self._hosts = dict(hosts)
        self._samples: dict[str, list[ClockSample]] = {}
        self._probes: dict[str, ClockProbe] = {}
        self._estimates: dict[str, ClockEstimate] = {}
        self._ending = threading.Event()
        self._lock = threading.Lock()
        own = clock_id()
        self._thread = threading.Thread(target=self._watch, name="clocks", daemon=True)
        try:
            for host in self._hosts.values():
                if host.clock != own:
                    self._add(host, scope)
        except BaseException:
            self.close()
            raise
        if self._probes:
            self._thread.start()

    @property
    def differ(self) -> bool:
        """Whether a host has a clock other than ours."""
        return bool(self._probes)

    def on_clock_of(self, host: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """A request whose times are those of the host's clock."""
        known = self._estimates.get(host)
        if known is None:
            return dict(payload)
        return {
            key: known.to_other(value) if key in _PEER_TIMES and isinstance(value, int) else value
            for key, value in payload.items()
        }

    def to_ours(self, host: str, host_ns: int) -> int:
        known = self._estimates.get(host)
        return host_ns if known is None else known.to_ours(host_ns)

    def finish(self) -> list[Clock]:
        """Compare once more, and return what the recording says about every host's clock."""
        self._stop()
        for host in self._probes:
            self._sample(host, _EDGE_BURSTS)
        return [self._clock(host) for host in self._hosts.values()]

    def close(self) -> None:
        self._stop()
        for probe in self._probes.values():
            probe.close()

    def _add(self, host: ClockAddress, scope: NoteScope) -> None:
        refusal = (
            f"the clock of {host.host} cannot be compared with the conductor's: no answer from {host.address} on UDP "
            f"port {host.port}; let it pass, or start the peer with --listen ADDRESS"
        )
        try:
            self._probes[host.host] = ClockProbe(host.address, host.port, scope)
        except PeerError as err:
            raise ConfigError(refusal) from err
        self._sample(host.host, _EDGE_BURSTS)
        if not self._samples.get(host.host):
            raise ConfigError(refusal)

    def _watch(self) -> None:
        while not self._ending.wait(_EVERY_S):
            for host in self._probes:
                self._sample(host)

    def _sample(self, host: str, bursts: int = 1) -> None:
        with self._lock:
            found = best_of(exchange for _ in range(bursts) for exchange in self._probes[host].burst())
            if found is None:
                return
            samples = self._samples.setdefault(host, [])
            samples.append(found)
            if len(samples) > _MAX_SAMPLES:
                del samples[1:-1:2]  # the first and the last decide
            self._estimates[host] = estimate(samples)

    def _clock(self, host: ClockAddress) -> Clock:
        known = self._estimates.get(host.host)
        if known is None:
            return Clock(host.host, host.realtime_offset_ns)
        return Clock(
            host.host, host.realtime_offset_ns, known.offset_ns, known.drift_ppb, known.bound_ns, known.reference_ns
        )

    def _stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()


def same_clock_for_all() -> HostClocks:
    """For a run whose processes are all on this host."""
    return HostClocks({}, NoteScope("", b""))


def clock_addresses(peers: list[ClockAddress]) -> dict[str, ClockAddress]:
    """One for each host but ours. ConfigError if two hosts have one name: the recording could not distinguish them."""
    own = socket.gethostname()
    found = {own: ClockAddress(own, clock_id(), "", 0, 0)}
    for peer in peers:
        known = found.setdefault(peer.host, peer)
        if known.clock != peer.clock:
            raise ConfigError(f"two hosts with different clocks are called {peer.host}; give them different names")
    del found[own]
    return found
