"""What does a peer measure about itself?

One type for the peers of all roles, because notes and manifests hold the statistics of any peer as one map of numbers;
and one constructor per role, which names everything that the role reports. What was not measured is None here and
absent from the map; keys that this version does not know are ignored. Measures nothing.
"""

import math
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

Measured = Annotated[float, Meta(ge=-(2.0**62), le=2.0**62)]
"""Finite, and as nanoseconds still within 64 bits after an addition."""


class PeerStatistics(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Statistics of one peer, each a number in the unit of its name, or None when the peer did not report it."""

    messages: Measured | None = None  # sent or received in the whole run; set when the recording is sealed
    # receivers, about the messages of the last second
    second_response_p90_ns: Measured | None = None
    second_response_max_ns: Measured | None = None
    # receivers, about the whole run
    read_delay_max_ns: Measured | None = None
    strays: Measured | None = None  # messages of other runs
    held_before: Measured | None = None  # destinations that held messages before the run
    # senders
    blocked_share: Measured | None = None  # time blocked by credit or socket
    lateness_p50_ns: Measured | None = None  # the generator's own delay, of messages with a schedule
    lateness_p99_ns: Measured | None = None
    own_delay_p99_ns: Measured | None = None
    own_delay_max_ns: Measured | None = None
    last_sent_ns: Measured | None = None  # a clock reading
    unsent: Measured | None = None  # due, but never sent
    unsent_own: Measured | None = None  # of these, what the other side did not hold back
    unsettled: Measured | None = None
    shed: Measured | None = None
    # client processes
    requests: Measured | None = None
    useful: Measured | None = None
    empty: Measured | None = None
    overloaded: Measured | None = None
    timeouts: Measured | None = None
    errors: Measured | None = None
    stored: Measured | None = None
    received: Measured | None = None
    unreadable: Measured | None = None
    violations: Measured | None = None
    unresolved: Measured | None = None
    under_way: Measured | None = None
    clients: Measured | None = None
    connects: Measured | None = None
    # several roles
    busy_share: Measured | None = None
    batch_share: Measured | None = None
    cpu_seconds: Measured | None = None
    stalled_ns: Measured | None = None  # senders and receivers: time in which the loop did not turn without meaning to
    # inspectors
    looks: Measured | None = None
    failed_looks: Measured | None = None
    missed_looks: Measured | None = None
    # agents
    handlers: Measured | None = None  # that were started
    failed_handlers: Measured | None = None  # that exited with another code than 0, or were ended by a limit

    def reported(self) -> dict[str, float]:
        """name -> value of everything that was reported, as notes and manifests hold it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def sender_statistics(
    *,
    blocked_share: float,
    lateness_p50_ns: int | None,
    lateness_p99_ns: int | None,
    own_delay_p99_ns: int | None,
    own_delay_max_ns: int | None,
    last_sent_ns: int | None,
    unsent: int,
    unsent_own: int,
    unsettled: int,
    shed: int | None,
    batch_share: float | None,
    cpu_seconds: float,
    stalled_ns: int,
) -> PeerStatistics:
    return PeerStatistics(
        blocked_share=_measured(blocked_share),
        lateness_p50_ns=_measured(lateness_p50_ns),
        lateness_p99_ns=_measured(lateness_p99_ns),
        own_delay_p99_ns=_measured(own_delay_p99_ns),
        own_delay_max_ns=_measured(own_delay_max_ns),
        last_sent_ns=_measured(last_sent_ns),
        unsent=_measured(unsent),
        unsent_own=_measured(unsent_own),
        unsettled=_measured(unsettled),
        shed=_measured(shed),
        batch_share=_measured(batch_share),
        cpu_seconds=_measured(cpu_seconds),
        stalled_ns=_measured(stalled_ns),
    )


def receiver_statistics(
    *,
    second_response_p90_ns: int | None,
    second_response_max_ns: int | None,
    busy_share: float,
    batch_share: float | None,
    cpu_seconds: float,
    read_delay_max_ns: int | None,
    stalled_ns: int,
    strays: int = 0,
    held_before: int = 0,
) -> PeerStatistics:
    return PeerStatistics(
        second_response_p90_ns=_measured(second_response_p90_ns),
        second_response_max_ns=_measured(second_response_max_ns),
        busy_share=_measured(busy_share),
        batch_share=_measured(batch_share),
        cpu_seconds=_measured(cpu_seconds),
        read_delay_max_ns=_measured(read_delay_max_ns),
        strays=_measured(strays) if strays else None,
        held_before=_measured(held_before) if held_before else None,
        stalled_ns=_measured(stalled_ns),
    )


def response_statistics(*, p90_ns: int | None, max_ns: int | None) -> PeerStatistics:
    """What a receiver reports about one slice in the last second."""
    return PeerStatistics(second_response_p90_ns=_measured(p90_ns), second_response_max_ns=_measured(max_ns))


def inspector_statistics(*, looks: int, failed_looks: int, missed_looks: int, cpu_seconds: float) -> PeerStatistics:
    return PeerStatistics(
        looks=_measured(looks),
        failed_looks=_measured(failed_looks),
        missed_looks=_measured(missed_looks),
        cpu_seconds=_measured(cpu_seconds),
    )


def agent_statistics(*, handlers: int, failed_handlers: int, cpu_seconds: float) -> PeerStatistics:
    return PeerStatistics(
        handlers=_measured(handlers), failed_handlers=_measured(failed_handlers), cpu_seconds=_measured(cpu_seconds)
    )


def client_statistics(
    *,
    requests: int,
    useful: int,
    empty: int,
    overloaded: int,
    timeouts: int,
    errors: int,
    stored: int,
    received: int,
    unreadable: int,
    violations: int,
    unresolved: int,
    under_way: int,
    clients: int,
    connects: int,
    cpu_seconds: float,
    busy_share: float,
) -> PeerStatistics:
    return PeerStatistics(
        requests=_measured(requests),
        useful=_measured(useful),
        empty=_measured(empty),
        overloaded=_measured(overloaded),
        timeouts=_measured(timeouts),
        errors=_measured(errors),
        stored=_measured(stored),
        received=_measured(received),
        unreadable=_measured(unreadable),
        violations=_measured(violations),
        unresolved=_measured(unresolved),
        under_way=_measured(under_way),
        clients=_measured(clients),
        connects=_measured(connects),
        busy_share=_measured(busy_share),
        cpu_seconds=_measured(cpu_seconds),
    )


def _measured(value: float | None) -> float | None:
    """A finite float, as it has always been written; None for anything else."""
    return float(value) if value is not None and math.isfinite(value) else None
