"""Does a destination hold messages before the run?

A connection of its own receives a message, settles nothing and closes, so that the message returns to where it was; or,
to purge, receives and settles until nothing more comes. Only systems that return what was not settled are looked at.
Tells whose messages they are by the tag in their stamps. Decides nothing: the verdict does.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from crescendo.load.engine.graceful_close import close_gracefully
from crescendo.load.engine.received_rows import UNSTAMPED, Tags
from crescendo.load.protocols.interfaces import Octets, ReceiveChannel
from crescendo.model.errors import ConfigError
from crescendo.model.protocols import protocol_of
from crescendo.model.units import format_unit
from crescendo.model.workload import STAMP_BYTES, Group, Settle
from crescendo.record.known_runs import runs_of_tags
from crescendo.wire.stamp import MAGIC, heads_of, stamp_words

MIN_IDLE_TIMEOUT_S = 0.1
MAX_IDLE_TIMEOUT_S = 2.0
_HANDSHAKES = 3  # a message takes one way more than the credit for it; a handshake takes several
PURGE_LIMIT_S = 15.0
AT_ONCE = 64
"""Connections that look at the same time."""

_LISTED_TAGS = 16
_NOT_KEPT = {"ack", "qos", "prefetch", "retained"}
Dial = Callable[[Group], ReceiveChannel]


def destinations_to_look_at(members: Sequence[Group]) -> list[Group]:
    """Of these groups, each with one destination, those that may hold messages which a look would not take away."""
    chosen: dict[str, Group] = {}
    for group in members:
        keeps = not group.is_topic or group.target.options.subscription is not None
        leaves = group.purge or protocol_of(group.protocol).returns_unsettled
        if keeps and leaves and not group.target.options.temporary:
            chosen.setdefault(group.shared_address, group)
    return list(chosen.values())


def look_at(
    groups: Sequence[Group], dial: Dial, await_ready: Callable[[Sequence[ReceiveChannel]], None]
) -> dict[str, Tags]:
    """Shared address -> messages that were there, by tag: one at most, or all if the group purges them."""
    found: dict[str, Tags] = {}
    for first in range(0, len(groups), AT_ONCE):
        some = groups[first : first + AT_ONCE]
        channels: list[ReceiveChannel] = []
        started_s = time.monotonic()
        try:
            for group in some:
                channels.append(dial(_looking(group)))
            await_ready(channels)
            handshake_s = time.monotonic() - started_s
            idle_timeout_s = min(max(MIN_IDLE_TIMEOUT_S, _HANDSHAKES * handshake_s), MAX_IDLE_TIMEOUT_S)
            for group, tags in zip(some, _received(some, channels, idle_timeout_s), strict=True):
                if tags:
                    found[group.shared_address] = tags
        finally:
            close_gracefully(channels)
    return found


def describe(address: str, tags: Tags, run_dir: Path, *, purged: bool = False) -> dict[str, Any]:
    """The detail of an event about messages of others, with the names of their runs where these are known."""
    listed = [(tag, count) for tag, count in tags.most_common(_LISTED_TAGS) if tag != UNSTAMPED]
    runs = runs_of_tags(run_dir, [tag for tag, _ in listed])
    return {
        "address": address,
        "messages": tags.total(),
        "unstamped": tags[UNSTAMPED],
        "runs": [{"tag": f"{tag:08x}", "run": runs.get(tag, ""), "messages": count} for tag, count in listed],
        "purged": purged,
    }


def _looking(group: Group) -> Group:
    """The group of a connection that looks: it settles by itself, takes one message, and is not slow."""
    target = group.target
    options = {
        name: format_unit(value) if hasattr(type(value), "parse") else {True: "yes", False: "no"}.get(value, value)
        for name in target.options.given
        if name not in _NOT_KEPT and (value := getattr(target.options, name)) is not None
    }
    if not group.purge:
        options["prefetch"] = 1
    query = urlencode(options, quote_via=quote)
    return msgspec.structs.replace(
        group,
        address=f"{target.node}?{query}" if query else target.node,
        failover=None,
        settle=Settle.AT_LEAST_ONCE,
        delay=None,
        receive_rate=None,
        summarize=None,
    )


def _received(groups: Sequence[Group], channels: Sequence[ReceiveChannel], idle_timeout_s: float) -> list[Tags]:
    found: list[Tags] = [Counter() for _ in channels]
    for channel in channels:
        channel.begin()
    started_s = quiet_since_s = time.monotonic()
    while (now_s := time.monotonic()) - quiet_since_s < idle_timeout_s:
        for group, channel, tags in zip(groups, channels, found, strict=True):
            for arrived in channel.pump():
                if group.purge or not tags:
                    tags.update(tags_of(arrived.payloads))
                    quiet_since_s = now_s
            if group.purge and channel.closed is None:
                channel.settle()
            channel.flush()
        if now_s - started_s > PURGE_LIMIT_S:
            full = ", ".join(group.target.node for group, tags in zip(groups, found, strict=True) if tags)
            raise ConfigError(f"purge: {full} is not empty after {PURGE_LIMIT_S:g} s; use the system's own tools")
        time.sleep(0.002)
    return found


def tags_of(payloads: Octets) -> Tags:
    """How many messages of each run these are."""
    count, size = payloads.shape
    if size < STAMP_BYTES:
        return Counter({UNSTAMPED: count})
    tags: Tags = Counter()
    for word in stamp_words(payloads)[:, 0].tolist():
        magic, _, tag = heads_of(int(word))
        tags[tag if magic == MAGIC else UNSTAMPED] += 1
    return tags
