"""How do received messages become rows of the recording?

A payload without a stamp is corrupt, one of another run is a stray, one below a sequence number that its sender already
delivered here is out of order: all are recorded, none is dropped. At full speed a read brings few messages where the
system allows few in flight, and the fixed cost of a batch would be paid for each read; so the stamps of several reads
are collected, each with the time of its read, and become rows together. Reads no socket and settles nothing.
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from crescendo.load.engine.statistics import Distribution
from crescendo.load.protocols.interfaces import Octets, ReceivedMessages
from crescendo.model.arrays import Int64s
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.workload import MAX_CONNECTIONS, STAMP_BYTES
from crescendo.record.schema import RECEIVED, Flag
from crescendo.record.writer import RowSink
from crescendo.wire.stamp import MAGIC, ONE_STAMP, heads_of, stamp_words

UNKNOWN = -1
UNSTAMPED = -1
"""Instead of the tag of a run: the message has no stamp, so another program sent it, or the system changed it."""

Tags = Counter[int]
"""How many messages of each run."""

MAX_SEQUENCE = 2**62
_MAX_DEFERRED = 2048
"""Messages of several reads that become rows together; larger batches save nothing more."""


class ReceiverCounts:
    """What one receiving connection has received, and the part of it that is not recorded yet."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.arrivals = 0
        self.batched = 0
        self.strays = 0  # of the arrivals, those of other runs
        self.foreign: Tags = Counter()  # what is not of this run, by the tag of its run
        self.highest: dict[int, int] = {}
        self.deferred = 0
        self._words = np.empty((_MAX_DEFERRED, 4), np.int64)
        self._reads: list[tuple[int, int, int, int]] = []  # messages, time of the read, size, flags

    def defer(self, payloads: Octets, received_ns: int, flags: int) -> bool:
        """Keep the stamps of a read for later; False when there is no room."""
        count, size = payloads.shape
        end = self.deferred + count
        if end > _MAX_DEFERRED:
            return False
        self._words[self.deferred : end] = stamp_words(payloads)
        self._reads.append((count, received_ns, size, flags))
        self.deferred = end
        return True

    def take_deferred(self) -> tuple[Int64s, int | Int64s, int | Int64s, int | Int64s]:
        """All deferred messages: stamps, times of the reads, sizes and flags."""
        words = self._words[: self.deferred].copy()
        columns = np.array(self._reads, np.int64).T
        self.deferred = 0
        self._reads.clear()
        received_ns, sizes, flags = (_per_message(column, columns[0]) for column in columns[1:])
        return words, received_ns, sizes, flags


def _per_message(values: Int64s, counts: Int64s) -> int | Int64s:
    """One value if all are the same, else one per message."""
    return int(values[0]) if (values == values[0]).all() else np.repeat(values, counts)


class ReceivedRows:
    """Turns what the connections of one process receive into rows."""

    def __init__(self, log: RowSink, tag: int, *, unpaced: bool) -> None:
        self.response = Distribution()
        self.response_ns = 0  # of the last message that became a row
        self.deferred = 0  # messages that are not rows yet
        self._log = log
        self._tag = tag
        self._unpaced = unpaced

    def last_second(self) -> dict[str, PeerStatistics]:
        """Slice -> its responses in the last second, where limits are on slices."""
        return {}

    def take(self, counts: ReceiverCounts, arrived: ReceivedMessages, received_ns: int) -> None:
        """Record these messages. At full speed they may be deferred until `flush_deferred`."""
        payloads = arrived.payloads
        count, size = payloads.shape
        flags = int(Flag.REDELIVERED) if arrived.redelivered else 0
        counts.arrivals += count
        if arrived.batched:
            counts.batched += count
        stamped = size >= STAMP_BYTES
        if self._unpaced:
            if stamped and counts.defer(payloads, received_ns, flags):
                self.deferred += count
                return
            self.flush_deferred(counts, count)
            if stamped and counts.defer(payloads, received_ns, flags):
                self.deferred += count
                return
        arrival = counts.arrivals - count
        if stamped and count > 1:
            self._take_words(counts, stamp_words(payloads).astype(np.int64), received_ns, arrival, size, flags)
            return
        for index, payload in enumerate(payloads):
            stamp = ONE_STAMP.unpack_from(payload.data) if stamped else (0, 0, 0, 0, 0, 0)
            self._take_one(counts, stamp, received_ns, arrival + index, size, flags)

    def take_stamps(
        self, counts: ReceiverCounts, words: Int64s, received_ns: Int64s, sizes: Int64s, flags: Int64s
    ) -> None:
        """Record messages that another process received: their stamps, and when each was received."""
        arrival, counts.arrivals = counts.arrivals, counts.arrivals + len(words)
        self._take_words(counts, words, received_ns, arrival, sizes, flags)

    def flush_deferred(self, counts: ReceiverCounts, newer: int = 0) -> None:
        """Turn deferred messages into rows; `newer` messages arrived after them."""
        if counts.deferred:
            arrival = counts.arrivals - newer - counts.deferred
            self.deferred -= counts.deferred
            words, received_ns, sizes, flags = counts.take_deferred()
            self._take_words(counts, words, received_ns, arrival, sizes, flags)

    def _take_words(
        self,
        counts: ReceiverCounts,
        words: Int64s,
        received_ns: int | Int64s,
        arrival: int,
        sizes: int | Int64s,
        flags: int | Int64s,
    ) -> None:
        """Several messages. Nearly always they are the next ones of one of our senders, which is the cheapest case."""
        count = len(words)
        heads, sequence, intended_ns, sent_ns = words[:, 0], words[:, 1], words[:, 2], words[:, 3]
        senders: int | npt.NDArray[np.int16]
        numbers: range | Int64s
        late = None
        if (sender := self._in_order(counts, heads, sequence)) is not None:
            first = int(sequence[0])
            senders, numbers = sender, range(first, first + count)
        elif self._all_ours(heads, sequence):
            every = heads_of(heads)[1].astype(np.int16)
            late = order_flags(every, sequence, counts.highest)
            senders, numbers = single_value(every), as_range(sequence)
        else:
            columns = (np.broadcast_to(column, count).tolist() for column in (received_ns, sizes, flags))
            rows = zip(words.tolist(), *columns, strict=True)
            for index, (word, read_ns, size, flag) in enumerate(rows):
                stamp = (*(int(part) for part in heads_of(word[0])), *word[1:])
                self._take_one(counts, stamp, read_ns, arrival + index, size, flag)
            return
        responses_ns = received_ns - intended_ns
        self.response_ns = int(responses_ns[-1])
        self.response.add(responses_ns)
        self._log.append(
            RECEIVED, count, counts.number, senders, numbers, intended_ns, sent_ns, received_ns,
            range(arrival, arrival + count), sizes, flags if late is None else late | flags,
        )  # fmt: skip

    def _in_order(self, counts: ReceiverCounts, heads: Int64s, sequence: Int64s) -> int | None:
        """The sender, if these are the next messages of one of our senders."""
        first, count = int(sequence[0]), len(sequence)
        if np.count_nonzero(heads != heads[0]) or np.count_nonzero(sequence != np.arange(first, first + count)):
            return None  # count_nonzero is faster than any()
        magic, sender, tag = heads_of(int(heads[0]))
        if magic != MAGIC or tag != self._tag or sender > MAX_CONNECTIONS or not 0 <= first <= MAX_SEQUENCE - count:
            return None
        if first < counts.highest.get(sender, UNKNOWN):
            return None
        counts.highest[sender] = first + count - 1
        return sender

    def _all_ours(self, heads: Int64s, sequence: Int64s) -> bool:
        magic, senders, tags = heads_of(heads)
        return bool(
            (magic == MAGIC).all()
            and (tags == self._tag).all()
            and (senders <= MAX_CONNECTIONS).all()
            and ((sequence >= 0) & (sequence <= MAX_SEQUENCE)).all()
        )

    def _take_one(
        self, counts: ReceiverCounts, stamp: tuple[int, ...], received_ns: int, arrival: int, size: int, flags: int
    ) -> None:
        """A single message, or one of a batch that contains foreign messages."""
        magic, sender, tag, sequence, intended_ns, sent_ns = stamp
        valid = magic == MAGIC and sender <= MAX_CONNECTIONS and 0 <= sequence <= MAX_SEQUENCE
        if valid and tag == self._tag:
            if sequence < counts.highest.get(sender, UNKNOWN):
                flags |= Flag.OUT_OF_ORDER
            else:
                counts.highest[sender] = sequence
            self.response_ns = received_ns - intended_ns
            self.response.add_one(self.response_ns)
        else:
            flags |= Flag.STRAY if valid else Flag.CORRUPT
            counts.strays += valid
            counts.foreign[tag if valid else UNSTAMPED] += 1
            sender, sequence, intended_ns, sent_ns = UNKNOWN, UNKNOWN, received_ns, received_ns
        self._log.append_one(
            RECEIVED, counts.number, sender, sequence, intended_ns, sent_ns, received_ns, arrival, size, int(flags)
        )


def single_value(values: npt.NDArray[np.int16]) -> npt.NDArray[np.int16] | int:
    """One value if all are the same, which takes less space."""
    return int(values[0]) if (values == values[0]).all() else values


def as_range(numbers: Int64s) -> Int64s | range:
    """A range if the numbers are consecutive."""
    first, last = int(numbers[0]), int(numbers[-1])
    counts = last - first == len(numbers) - 1 and (numbers[1:] - numbers[:-1] == 1).all()
    return range(first, last + 1) if counts else numbers


def order_flags(
    senders: npt.NDArray[np.int16], sequence: Int64s, highest: dict[int, int]
) -> npt.NDArray[np.int16] | None:
    """OUT_OF_ORDER for each message below one that its sender already delivered here; None if there is none."""
    first = int(senders[0])
    if (senders == first).all():
        late = _below_earlier(sequence, first, highest)
    else:
        late = np.zeros(len(senders), bool)
        for sender in np.unique(senders).tolist():
            positions = np.flatnonzero(senders == sender)
            late[positions] = _below_earlier(sequence[positions], sender, highest)
    return np.where(late, np.int16(Flag.OUT_OF_ORDER), np.int16(0)) if late.any() else None


def _below_earlier(sequence: Int64s, sender: int, highest: dict[int, int]) -> npt.NDArray[np.bool_]:
    earlier = np.maximum.accumulate(np.concatenate(([highest.get(sender, UNKNOWN)], sequence)))
    highest[sender] = int(earlier[-1])
    late: npt.NDArray[np.bool_] = sequence < earlier[:-1]
    return late
