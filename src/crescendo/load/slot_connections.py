"""How do the connections of one sender or receiver process come up?

Every slot of its assignment is dialled in the protocol of its group, and all of them have to be ready within a time.
A slot may be dialled again later, at the next of its addresses. Sends no message and grants no credit.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from crescendo.load.assignment import ConnectionSlot, LoadAssignment
from crescendo.load.engine.request_spans import SpanSource
from crescendo.load.protocols.registry import driver_of
from crescendo.model.address import address_of
from crescendo.model.errors import CrescendoError, PeerError
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group

READY_TIMEOUT_S = 10.0
_SUBSCRIBE_RETRIES = 4
_SUBSCRIBE_AGAIN_S = 0.1


class SlotConnections:
    """Dials the slots of one process. A channel is of the class that the driver of its protocol has."""

    def __init__(
        self, role: str, assignment: LoadAssignment, groups: dict[str, Group], keep_lease: Callable[[], None]
    ) -> None:
        """`keep_lease` is called while connections are awaited."""
        self._role = role
        self._assignment = assignment
        self._groups = groups
        self._keep_lease = keep_lease
        self.span_sources: list[SpanSource] = []
        """Channels that measure parts of requests."""

    def connect(self) -> list[Any]:
        """A channel for every slot, in their order.

        Of the receivers that share a subscription, the first creates it alone: Artemis refuses the others meanwhile.
        Processes cannot take turns, so a receiver that is refused in another process tries again.
        """
        slots = self._assignment.places
        sharing = self._sharing_slots() if self._role == "receiver" else {}
        first = [members[0] for members in sharing.values()]
        rest = [slot for slot in slots if slot not in first]
        patient = frozenset(slot.id for members in sharing.values() for slot in members)
        channels: dict[int, Any] = {}
        try:
            for some in (first, rest):
                self._connect_some(some, channels, patient)
        except CrescendoError:
            for channel in channels.values():
                channel.close()
            raise
        return [channels[slot.id] for slot in slots]

    def dialler(self, slot: ConnectionSlot) -> Callable[[int], Any]:
        """A function that dials one slot: its first address on attempt 0, the next of its addresses on each retry."""
        group = self._groups[slot.group].member(slot.index)
        make = driver_of(group.protocol, self._role)

        def dial(attempt: int) -> Any:
            text = group.addresses[attempt % len(group.addresses)]
            url = address_of(text).url or self._assignment.urls[group.protocol]
            channel = make(url, msgspec.structs.replace(group, address=text))
            if isinstance(channel, SpanSource):
                self.span_sources.append(channel)
            return channel

        return dial

    def dial(self, group: Group, role: str, side_group: Group) -> Any:
        """A channel of its own at the system of a group, beside those of the load; it is not awaited."""
        url = group.target.url or self._assignment.urls[side_group.protocol]
        return driver_of(side_group.protocol, role)(url, side_group)

    def connect_beside(self, group: Group, role: str, side_group: Group) -> Any:
        """The same, ready to use."""
        channel = self.dial(group, role, side_group)
        self.await_ready([channel])
        return channel

    def await_ready(self, channels: Sequence[Any]) -> None:
        """Until the system has answered all of them. Raises PeerError if it refuses one, or is too slow."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        waiting = list(channels)
        while waiting:
            for channel in waiting:
                channel.flush()
                for _ in channel.pump():
                    pass  # nothing can arrive: receivers grant their first credit when the engine starts
                if channel.closed is not None:
                    raise PeerError(channel.closed)
            waiting = [channel for channel in waiting if not channel.ready]
            if time.monotonic() > deadline:
                silent = f"{len(waiting)} connection(s) and did not answer within {READY_TIMEOUT_S:g} s"
                raise PeerError(f"the system accepted {silent}; is this a port of that protocol?")
            if waiting:
                time.sleep(0.002)
                self._keep_lease()

    def _connect_some(self, slots: list[ConnectionSlot], channels: dict[int, Any], patient: frozenset[int]) -> None:
        """Connect these slots; those in `patient` try again when they are refused."""
        for attempt in range(1 + _SUBSCRIBE_RETRIES):
            for slot in slots:
                if slot.id not in channels:
                    channels[slot.id] = self.dialler(slot)(0)
            try:
                self.await_ready([channels[slot.id] for slot in slots])
            except PeerError:
                refused = {slot.id for slot in slots if channels[slot.id].closed is not None}
                if attempt == _SUBSCRIBE_RETRIES or not refused or not refused <= patient:
                    raise
                for number in refused:
                    channels.pop(number).close()
                time.sleep(_SUBSCRIBE_AGAIN_S * (attempt + 1))
            else:
                return

    def _sharing_slots(self) -> dict[str, list[ConnectionSlot]]:
        """Shared address -> the receivers that share one subscription to it."""
        sharing: dict[str, list[ConnectionSlot]] = {}
        for slot in self._assignment.places:
            group = self._groups[slot.group].member(slot.index)
            if protocol_of(group.protocol).shares_subscriptions and not group.is_topic:
                sharing.setdefault(group.shared_address, []).append(slot)
        return sharing
