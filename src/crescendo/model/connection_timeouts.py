"""How soon does a connection of a group notice that nobody answers any more?

Values only, as a person writes them under `workload.connection`: heartbeats of the protocol, two options of TCP, and
how long a sender waits for outcomes. Whether a connection that was given up is made again is `failover` of the group.
Sets nothing.
"""

from msgspec import Struct

from crescendo.model.units import Duration

KEEPALIVE_PROBES = 3
"""Unanswered probes after which TCP gives a silent connection up."""

_MAX_HEARTBEAT_NS = 600 * 10**9
_MAX_KEEPALIVE_NS = 32_767 * 10**9  # of the kernel
_MAX_TIMEOUT_NS = 3_600 * 10**9
_NS_PER_S, _NS_PER_MS = 10**9, 10**6


class ConnectionTimeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out is as our drivers and the kernel do it: heartbeats every 10 s, no keepalive, no timeouts."""

    heartbeat: Duration | None = None
    keepalive: Duration | None = None
    user_timeout: Duration | None = None
    confirm_timeout: Duration | None = None

    def __post_init__(self) -> None:
        for key, value, longest_ns in (
            ("heartbeat", self.heartbeat, _MAX_HEARTBEAT_NS),
            ("keepalive", self.keepalive, _MAX_KEEPALIVE_NS),
        ):
            if value is not None and (value % _NS_PER_S or not 0 < value <= longest_ns):
                raise ValueError(f"{key} must be whole seconds, from 1s to {longest_ns // _NS_PER_S}s")
        for key, timeout in (("user_timeout", self.user_timeout), ("confirm_timeout", self.confirm_timeout)):
            if timeout is not None and (timeout % _NS_PER_MS or not 0 < timeout <= _MAX_TIMEOUT_NS):
                raise ValueError(f"{key} must be whole milliseconds, from 1ms to 1h")

    def heartbeat_ms(self, default_ms: int) -> int:
        return default_ms if self.heartbeat is None else self.heartbeat // _NS_PER_MS

    @property
    def keepalive_s(self) -> int:
        """0: none."""
        return (self.keepalive or 0) // _NS_PER_S

    @property
    def user_timeout_ms(self) -> int:
        """0: that of the kernel, about a quarter of an hour."""
        return (self.user_timeout or 0) // _NS_PER_MS
