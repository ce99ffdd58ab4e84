"""What time was it on the conductor's clock?

Rows carry the times of the host that wrote them. Where hosts have clocks of their own, the manifest maps each to the
conductor's: the times of a sender with the clock of the sender's host, also in rows that a receiver wrote, and the time
of receipt with the clock of the receiver's host. Recordings of one clock are not touched.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.record.clock_mapping import is_shifted
from crescendo.record.manifest import Clock, ConnectionRole, Manifest
from crescendo.record.schema import RECEIVED, SENT, SETTLED

_TIMES: dict[str, dict[ConnectionRole, tuple[str, ...]]] = {
    SENT: {"sender": (c.INTENDED_NS, c.SENT_NS)},
    SETTLED: {"sender": (c.SENT_NS, c.SETTLED_NS)},
    RECEIVED: {"sender": (c.INTENDED_NS, c.SENT_NS), "receiver": (c.RECEIVED_NS,)},
}
"""Table -> whose connection number decides -> which times."""


def on_conductors_clock(frame: DataFrame, table: str, manifest: Manifest) -> DataFrame:
    """The same rows with their times on the conductor's clock."""
    shifted = [clock for clock in manifest.clocks if is_shifted(clock)]
    if not shifted or table not in _TIMES:
        return frame
    mapped: dict[str, Column] = {}
    for role, times in _TIMES[table].items():
        numbers = {clock.host: _connections_on(clock.host, role, manifest) for clock in shifted}
        for time in times:
            mapped[time] = reduce(
                lambda otherwise, clock, time=time, role=role, numbers=numbers: F.when(  # type: ignore[misc]
                    F.col(role).isin(numbers[clock.host]), _to_ours(F.col(time), clock)
                ).otherwise(otherwise),
                [clock for clock in shifted if numbers[clock.host]],
                F.col(time),
            )
    return frame.withColumns(mapped)


def _connections_on(host: str, role: ConnectionRole, manifest: Manifest) -> list[int]:
    peers = {peer.id for peer in manifest.peers if peer.host == host}
    return [one.id for one in manifest.connections if one.role == role and one.peer in peers]


def _to_ours(time_ns: Column, clock: Clock) -> Column:
    drifted = F.round((time_ns - F.lit(clock.reference_ns)) * F.lit(clock.drift_ppb * 1e-9)).cast("long")
    return time_ns + F.lit(clock.offset_ns) + drifted
