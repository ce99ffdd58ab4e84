"""Which connections belong to which slice of a run, and how are their latencies counted apart?

Latencies are counted by the group and the destination of the sender and by the group of the receiver; every slice is a
sum of such counts. Where there is one of each, which is usual, the columns are constants and cost nothing. Reads the
manifest; counts nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from crescendo.model.slices import MOST_DESTINATIONS, MOST_GROUPS, SliceScope, protocols_by_side
from crescendo.pipeline import columns as c
from crescendo.pipeline.source.per_run import UNKNOWN, lookup
from crescendo.record.manifest import ConnectionRecord, Manifest
from crescendo.record.recorded_experiment import experiment_of

_SENDER_PLACE, _RECEIVER_PLACE = "sender_place", "receiver_place"


@dataclass(frozen=True)
class RunSlice:
    """One group, destination or protocol of a run."""

    scope: SliceScope
    name: str
    senders: frozenset[int]  # whose messages it has, or has a part of
    receivers: frozenset[int]  # that receive them
    groups: frozenset[str]
    by_receiver: bool  # it has no senders of its own, only a part of the deliveries of others
    is_whole: bool  # it has every message of the run

    @property
    def counts(self) -> pc.Expression:
        """Which rows of the histogram and of the corrections belong to it."""
        if self.scope is SliceScope.DESTINATION:
            return pc.field(c.DESTINATION) == self.name
        return pc.field(c.RECEIVER_GROUP if self.by_receiver else c.SENDER_GROUP).isin(sorted(self.groups))


Place = tuple[str, str | None]
"""Group and destination of a sender."""


@dataclass(frozen=True)
class SliceColumns:
    """The connections of runs by the columns that tell slices apart."""

    senders: tuple[Mapping[int, Place], ...]  # of each run
    receivers: tuple[Mapping[int, str], ...]  # their groups

    @classmethod
    def of_runs(cls, runs: "Sequence[SliceColumns]") -> "SliceColumns":
        """Those of several runs together."""
        return cls(*(tuple(each for run in runs for each in getattr(run, side)) for side in ("senders", "receivers")))

    def keys(self, *, sender: bool = True, receiver: bool = True) -> list[Column]:
        """Numbers to group by; unless there is only one value, which needs no column."""
        columns = []
        if sender and len(self._sender_names) > 1:
            columns.append(_place(self.senders, self._sender_names, c.SENDER).alias(_SENDER_PLACE))
        if receiver and len(self._receiver_names) > 1:
            columns.append(_place(self.receivers, self._receiver_names, c.RECEIVER).alias(_RECEIVER_PLACE))
        return columns

    def key_names(self, *, sender: bool = True, receiver: bool = True) -> list[str]:
        many = {
            _SENDER_PLACE: sender and len(self._sender_names) > 1,
            _RECEIVER_PLACE: receiver and len(self._receiver_names) > 1,
        }
        return [name for name, present in many.items() if present]

    def columns(self, *, sender: bool = True, receiver: bool = True) -> list[Column]:
        """Group and destination of the sender, and group of the receiver; null where they do not apply."""
        groups = [name for name, _ in self._sender_names] if sender else []
        destinations = [name for _, name in self._sender_names] if sender else []
        return [
            _named(groups, _SENDER_PLACE).alias(c.SENDER_GROUP),
            _named(destinations, _SENDER_PLACE).alias(c.DESTINATION),
            _named(self._receiver_names if receiver else [], _RECEIVER_PLACE).alias(c.RECEIVER_GROUP),
        ]

    @cached_property
    def _sender_names(self) -> list[tuple[str, str | None]]:
        return list(dict.fromkeys(name for run in self.senders for name in run.values()))

    @cached_property
    def _receiver_names(self) -> list[str]:
        return list(dict.fromkeys(name for run in self.receivers for name in run.values()))


NO_SLICES = SliceColumns(({},), ({},))
"""For samples that belong to no connection."""


def _place(runs: Sequence[Mapping[int, Any]], names: Sequence[Any], connection: str) -> Column:
    """The position of a connection's name. In a run with one name, every message has it, from every sender."""
    places = [{number: names.index(name) for number, name in run.items()} for run in runs]
    only = [next(iter(found.values())) if len(set(found.values())) == 1 else UNKNOWN for found in places]
    return lookup(places, F.col(connection), only)


def _named(names: list[str] | list[str | None], place: str) -> Column:
    distinct = dict.fromkeys(names)
    if len(distinct) < 2:
        return F.lit(next(iter(distinct), None)).cast("string")
    return F.get(F.array(*(F.lit(name) for name in names)), F.col(place))


def slice_columns(manifest: Manifest) -> SliceColumns:
    """Destinations only if there are few, and nothing if there are too many groups."""
    if len({item.group for item in manifest.connections}) > MOST_GROUPS:
        return NO_SLICES
    few = len({_destination(item) for item in manifest.connections}) <= MOST_DESTINATIONS
    return SliceColumns(
        ({item.id: (item.group, _destination(item) if few else None) for item in _of(manifest, c.SENDER)},),
        ({item.id: item.group for item in _of(manifest, c.RECEIVER)},),
    )


def run_slices(manifest: Manifest) -> list[RunSlice]:
    """Groups, then destinations, then protocols. A name that is taken by a group is not used again."""
    (senders,), experiment = slice_columns(manifest).senders, experiment_of(manifest)
    if not senders:
        return []
    protocols = protocols_by_side(experiment.workload, experiment.clients)
    found: dict[str, RunSlice] = {}
    names: list[tuple[SliceScope, str, list[ConnectionRecord]]] = []
    connections = manifest.connections
    for group in dict.fromkeys(item.group for item in connections):
        names.append((SliceScope.GROUP, group, [item for item in connections if item.group == group]))
    if all(destination is not None for _, destination in senders.values()):
        for destination in dict.fromkeys(_destination(item) for item in connections):
            chosen = [item for item in connections if _destination(item) == destination]
            names.append((SliceScope.DESTINATION, destination, chosen))
    for protocol in dict.fromkeys(protocols.values()):
        chosen = [item for item in connections if protocols.get((item.group, item.role)) == protocol]
        names.append((SliceScope.PROTOCOL, protocol, chosen))
    for scope, name, chosen in names:
        if name and name not in found and chosen:  # an import may not know its addresses
            found[name] = _slice(scope, name, chosen, manifest)
    return list(found.values())


def _slice(scope: SliceScope, name: str, chosen: list[ConnectionRecord], manifest: Manifest) -> RunSlice:
    senders = {item.id for item in chosen if item.role == c.SENDER}
    receivers = {item.id for item in chosen if item.role == c.RECEIVER}
    by_receiver, every = not senders, {item.id for item in _of(manifest, c.SENDER)}
    addresses = {item.address for item in chosen if by_receiver or item.role == c.SENDER}
    if by_receiver:
        senders = {item.id for item in _of(manifest, c.SENDER) if item.address in addresses}
    else:
        receivers = {item.id for item in _of(manifest, c.RECEIVER) if item.address in addresses}
    return RunSlice(
        scope=scope,
        name=name,
        senders=frozenset(senders),
        receivers=frozenset(receivers),
        groups=frozenset(item.group for item in chosen if by_receiver or item.role == c.SENDER),
        by_receiver=by_receiver,
        is_whole=not by_receiver and senders == every,
    )


def _of(manifest: Manifest, role: str) -> list[ConnectionRecord]:
    return [item for item in manifest.connections if item.role == role]


def _destination(item: ConnectionRecord) -> str:
    return item.address.partition("?")[0]
