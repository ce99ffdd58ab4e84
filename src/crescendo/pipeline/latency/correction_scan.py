"""Which messages must be looked at to find out what the run would be like without our own delay?

Those in the recorded ranges or in an episode that is ours in part, and settlements around the stalls of senders. A run
without any has nothing to correct, and then no job runs. Prepares the ranges; `corrections` counts.
"""

import math
from functools import partial

from pyspark.sql import DataFrame

from crescendo.pipeline import columns as c
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.corrections import SharedEpisodes, delivery_corrections, settle_corrections
from crescendo.pipeline.latency.delay_episodes import shared_episodes
from crescendo.pipeline.latency.delay_ranges import DDL, DelayRanges, own_delays, read_delays
from crescendo.pipeline.latency.late_spans import late_spans, least_octave
from crescendo.pipeline.latency.message_paths import message_paths
from crescendo.pipeline.latency.range_join import JoinedRanges
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.ingest import read_parquet
from crescendo.pipeline.source.recorded_stalls import ConnectionStalls, stalls_of
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.record.manifest import Manifest
from crescendo.record.schema import EVENTS, OWN_DELAY, READ_DELAY, SETTLED

LEAST_RECEIVER_STALL_NS = 10_000_000
"""A shorter stall of a receiver does not hold a sender back for long enough to matter."""


def build_corrections(context: AnalysisContext, store: TableStore) -> DataFrame | None:
    """The signed counts; None if there is nothing to correct, or if the peers kept no account."""
    if not context.accounts_own_delay:
        return None
    recording, connections, timeline = context.recording, context.connections, context.timeline
    own = own_delays(recording.local_files(OWN_DELAY), connections.scheduled)
    read = read_delays(recording.local_files(READ_DELAY), connections.subscription_of)
    own_ranges, read_ranges = _joined(context, store, c.OWN_RANGES, own), _joined(context, store, c.READ_RANGES, read)
    events = recording.local_files(EVENTS)
    sender_stalls = stalls_of(c.SENDER, events, recording.manifest)
    receiver_stalls = stalls_of(c.RECEIVER, events, recording.manifest, LEAST_RECEIVER_STALL_NS)
    episodes = _shared_episodes(context, store, own_ranges, read_ranges, sender_stalls, receiver_stalls)
    found = []
    if own_ranges or read_ranges or connections.is_mixed or episodes.of_paths:
        received, slices = context.frames.received, context.slices
        holding = receiver_stalls if own_ranges else []  # only messages that were held back ask for them
        found.append(
            delivery_corrections(received, own_ranges, read_ranges, holding, timeline, connections, slices, episodes)
        )
    if recording.rows(SETTLED) and (sender_stalls or episodes.of_senders):
        found.append(settle_corrections(context.frames.settled, sender_stalls, timeline, context.slices, episodes))
    return None if not found else found[0] if len(found) == 1 else found[0].unionByName(found[1])


def _shared_episodes(
    context: AnalysisContext,
    store: TableStore,
    own: JoinedRanges | None,
    read: JoinedRanges | None,
    sender_stalls: ConnectionStalls,
    receiver_stalls: ConnectionStalls,
) -> SharedEpisodes:
    """One more scan, unless no peer was ever late for as long as an episode lasts."""
    manifest, timeline = context.recording.manifest, context.timeline
    paths, origin_ns = message_paths(manifest), timeline.origin_ns
    least = least_octave(max((phase.end_ns for phase in timeline.phases), default=origin_ns) - origin_ns, paths.count)
    stalled_ns = [stall.duration_ns for _, own in (*sender_stalls, *receiver_stalls) for stall in own]
    if max(_longest_own_ns(manifest, context.connections), *stalled_ns, 0) < 1 << least:
        return SharedEpisodes(paths, origin_ns)
    store.write_frame(c.LATE_SPANS, lambda: late_spans(context.frames.received, own, read, paths, least))
    stalls = partial(paths.stalls_of, senders=sender_stalls, receivers=receiver_stalls)
    files = store.files(c.LATE_SPANS)
    of_paths = shared_episodes(files, least, origin_ns, stalls)
    of_senders = shared_episodes(files, least, origin_ns, stalls, paths.receiving_ends)
    store.remove(c.LATE_SPANS)
    return SharedEpisodes(
        paths,
        origin_ns,
        _joined(context, store, c.PATH_EPISODES, of_paths),
        _joined(context, store, c.SENDER_EPISODES, of_senders),
    )


def _longest_own_ns(manifest: Manifest, connections: Connections) -> float:
    """As the peers reported it; where one did not, it may be anything. Senders without a schedule are never late."""
    scheduled = {
        item.peer for item in manifest.connections if item.role == c.SENDER and item.id in connections.scheduled
    }
    longest = [peer.statistics.own_delay_max_ns for peer in manifest.peers if peer.id in scheduled]
    longest += [peer.statistics.read_delay_max_ns for peer in manifest.peers if peer.role == c.RECEIVER]
    return max((math.inf if ns is None else ns for ns in longest), default=0.0)


def _joined(context: AnalysisContext, store: TableStore, name: str, ranges: DelayRanges) -> JoinedRanges | None:
    if not ranges.first.size:
        return None
    bits = ranges.block_bits
    store.write_table(name, ranges.pieces(bits))
    return JoinedRanges(read_parquet(context.spark, DDL, [str(file) for file in store.files(name)]), bits)
