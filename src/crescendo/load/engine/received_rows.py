"""Which rows do messages become that have arrived?

A payload without a stamp is corrupt, one of another run is a stray, one that is older than what its sender already
delivered here is out of order: all are recorded, none is dropped. At full speed a read brings few messages where the
system lets few be under way, and what a batch costs would be paid for each of them; so the stamps of several reads are
put together, each with the time of its read, and become rows at once. Reads nothing and settles nothing.
"""

import numpy as np
import numpy.typing as npt

from crescendo.load.engine.statistics import Distribution
from crescendo.load.protocols.interfaces import Octets, ReceivedMessages
from crescendo.model.workload import MAX_CONNECTIONS, STAMP_BYTES
from crescendo.record.schema import RECEIVED, Flag
from crescendo.record.writer import RowSink
from crescendo.wire.stamp import MAGIC, ONE_STAMP, heads_of, stamp_words

Int64s = npt.NDArray[np.int64]

NOBODY = -1
MAX_SEQUENCE = 2**62
_ENOUGH = 2048
"""Messages of several reads that are worth being taken together; beyond that nothing is saved any more."""


class ReceiverCounts:
    """What one receiving connection has got, and what of it is not recorded yet."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.arrivals = 0
        self.batched = 0
        self.highest: dict[int, int] = {}
        self.put_aside = 0
        self._words = np.empty((_ENOUGH, 4), np.int64)
        self._reads: list[tuple[int, int, int, int]] = []  # messages, when they were read, their size, their flags

    def put(self, payloads: Octets, received_ns: int, flags: int) -> bool:
        """Put the stamps of a read aside; False when there is no room."""
        count, size = payloads.shape
        end = self.put_aside + count
        if end > _ENOUGH:
            return False
        self._words[self.put_aside : end] = stamp_words(payloads)
        self._reads.append((count, received_ns, size, flags))
        self.put_aside = end
        return True

    def pull(self) -> tuple[Int64s, int | Int64s, int | Int64s, int | Int64s]:
        """All that was put aside: stamps, and of each message when it was read, its size and its flags."""
        words = self._words[: self.put_aside].copy()
        columns = np.array(self._reads, np.int64).T
        self.put_aside = 0
        self._reads.clear()
        received_ns, sizes, flags = (_spread(column, columns[0]) for column in columns[1:])
        return words, received_ns, sizes, flags


def _spread(values: Int64s, counts: Int64s) -> int | Int64s:
    """One value where all are the same, else one for each message."""
    return int(values[0]) if (values == values[0]).all() else np.repeat(values, counts)


class ReceivedRows:
    """Makes rows of what has arrived on the connections of one process."""

    def __init__(self, log: RowSink, tag: int, *, unhurried: bool) -> None:
        self.response = Distribution()
        self.response_ns = 0  # of the last message that became a row
        self.behind = 0  # messages that were put aside
        self._log = log
        self._tag = tag
        self._unhurried = unhurried

    def take(self, tally: ReceiverCounts, arrived: ReceivedMessages, received_ns: int) -> None:
        """These have arrived. At full speed they may be put aside until `catch_up`."""
        payloads = arrived.payloads
        count, size = payloads.shape
        flags = int(Flag.REDELIVERED) if arrived.redelivered else 0
        tally.arrivals += count
        if arrived.batched:
            tally.batched += count
        stamped = size >= STAMP_BYTES
        if self._unhurried:
            if stamped and tally.put(payloads, received_ns, flags):
                self.behind += count
                return
            self.catch_up(tally, count)
            if stamped and tally.put(payloads, received_ns, flags):
                self.behind += count
                return
        arrival = tally.arrivals - count
        if stamped and count > 1:
            self._take_words(tally, stamp_words(payloads).astype(np.int64), received_ns, arrival, size, flags)
            return
        for index, payload in enumerate(payloads):
            stamp = ONE_STAMP.unpack_from(payload.data) if stamped else (0, 0, 0, 0, 0, 0)
            self._take_one(tally, stamp, received_ns, arrival + index, size, flags)

    def catch_up(self, tally: ReceiverCounts, behind: int = 0) -> None:
        """What was put aside becomes rows; `behind` messages came after it."""
        if tally.put_aside:
            arrival = tally.arrivals - behind - tally.put_aside
            self.behind -= tally.put_aside
            words, received_ns, sizes, flags = tally.pull()
            self._take_words(tally, words, received_ns, arrival, sizes, flags)

    def _take_words(
        self,
        tally: ReceiverCounts,
        words: Int64s,
        received_ns: int | Int64s,
        arrival: int,
        sizes: int | Int64s,
        flags: int | Int64s,
    ) -> None:
        """Several messages. Nearly always they are the next ones of one sender of ours: that takes least."""
        count = len(words)
        heads, sequence, intended_ns, sent_ns = words[:, 0], words[:, 1], words[:, 2], words[:, 3]
        senders: int | npt.NDArray[np.int16]
        numbers: range | Int64s
        late = None
        if (sender := self._in_order(tally, heads, sequence)) is not None:
            first = int(sequence[0])
            senders, numbers = sender, range(first, first + count)
        elif self._all_ours(heads, sequence):
            every = heads_of(heads)[1].astype(np.int16)
            late = order_flags(every, sequence, tally.highest)
            senders, numbers = the_only(every), as_count(sequence)
        else:
            columns = (np.broadcast_to(column, count).tolist() for column in (received_ns, sizes, flags))
            rows = zip(words.tolist(), *columns, strict=True)
            for index, (word, read_ns, size, flag) in enumerate(rows):
                stamp = (*(int(part) for part in heads_of(word[0])), *word[1:])
                self._take_one(tally, stamp, read_ns, arrival + index, size, flag)
            return
        responses_ns = received_ns - intended_ns
        self.response_ns = int(responses_ns[-1])
        self.response.add(responses_ns)
        self._log.append(
            RECEIVED, count, tally.number, senders, numbers, intended_ns, sent_ns, received_ns,
            range(arrival, arrival + count), sizes, flags if late is None else late | flags,
        )  # fmt: skip

    def _in_order(self, tally: ReceiverCounts, heads: Int64s, sequence: Int64s) -> int | None:
        """The sender, where these are the next messages of one of ours."""
        first, count = int(sequence[0]), len(sequence)
        if np.count_nonzero(heads != heads[0]) or np.count_nonzero(sequence != np.arange(first, first + count)):
            return None  # counting is the quickest way to ask whether any
        magic, sender, tag = heads_of(int(heads[0]))
        if magic != MAGIC or tag != self._tag or sender > MAX_CONNECTIONS or not 0 <= first <= MAX_SEQUENCE - count:
            return None
        if first < tally.highest.get(sender, NOBODY):
            return None
        tally.highest[sender] = first + count - 1
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
        self, tally: ReceiverCounts, stamp: tuple[int, ...], received_ns: int, arrival: int, size: int, flags: int
    ) -> None:
        """A single message, or one of a batch with something foreign in it."""
        magic, sender, tag, sequence, intended_ns, sent_ns = stamp
        sound = magic == MAGIC and sender <= MAX_CONNECTIONS and 0 <= sequence <= MAX_SEQUENCE
        if sound and tag == self._tag:
            if sequence < tally.highest.get(sender, NOBODY):
                flags |= Flag.OUT_OF_ORDER
            else:
                tally.highest[sender] = sequence
            self.response_ns = received_ns - intended_ns
            self.response.add_one(self.response_ns)
        else:
            flags |= Flag.STRAY if sound else Flag.CORRUPT
            sender, sequence, intended_ns, sent_ns = NOBODY, NOBODY, received_ns, received_ns
        self._log.append_one(
            RECEIVED, tally.number, sender, sequence, intended_ns, sent_ns, received_ns, arrival, size, int(flags)
        )


def the_only(values: npt.NDArray[np.int16]) -> npt.NDArray[np.int16] | int:
    """One value where all are the same: that much less to keep."""
    return int(values[0]) if (values == values[0]).all() else values


def as_count(numbers: Int64s) -> Int64s | range:
    """A range where the numbers count up one by one."""
    first, last = int(numbers[0]), int(numbers[-1])
    counts = last - first == len(numbers) - 1 and (numbers[1:] - numbers[:-1] == 1).all()
    return range(first, last + 1) if counts else numbers


def order_flags(
    senders: npt.NDArray[np.int16], sequence: Int64s, highest: dict[int, int]
) -> npt.NDArray[np.int16] | None:
    """OUT_OF_ORDER for each message below one that its sender already delivered here; None when none is."""
    first = int(senders[0])
    if (senders == first).all():
        late = _below_earlier(sequence, first, highest)
    else:
        late = np.zeros(len(senders), bool)
        for sender in np.unique(senders).tolist():
            places = np.flatnonzero(senders == sender)
            late[places] = _below_earlier(sequence[places], sender, highest)
    return np.where(late, np.int16(Flag.OUT_OF_ORDER), np.int16(0)) if late.any() else None


def _below_earlier(sequence: Int64s, sender: int, highest: dict[int, int]) -> npt.NDArray[np.bool_]:
    earlier = np.maximum.accumulate(np.concatenate(([highest.get(sender, NOBODY)], sequence)))
    highest[sender] = int(earlier[-1])
    late: npt.NDArray[np.bool_] = sequence < earlier[:-1]
    return late
