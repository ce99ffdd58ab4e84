"""How are the messages of a batch stamped?

The stamps of one connection share their first fields, which are written once per batch of its channel; sequence number
and times are written for each message, one by one or in columns. Reads no clock.
"""

import numpy as np

from crescendo.load.protocols.interfaces import SendChannel
from crescendo.model.arrays import Int64s
from crescendo.wire.stamp import MAGIC, STAMP_NUMBERS, STAMP_NUMBERS_AT, stamp_words

_NO_TIMES: Int64s = np.empty((0, 2), np.int64)


class BatchStamps:
    """The stamps of the batch that a connection has at the moment."""

    def __init__(self, number: int, tag: int, single: int) -> None:
        self.bodies: list[memoryview] = []  # the first ones, for messages that are stamped one by one
        self.seqs: Int64s = _NO_TIMES[:, 0]
        self.times_ns: Int64s = _NO_TIMES  # intended and send times
        self._number = number
        self._tag = tag
        self._single = single  # how many are stamped one by one at most
        self.attached: object = None  # the stamps of that batch

    def attach(self, channel: SendChannel, count: int) -> None:
        """The channel has another batch: make its first `count` messages ready."""
        stamps = channel.stamps[:count]
        stamps["magic"] = MAGIC
        stamps["sender"] = self._number
        stamps["tag"] = self._tag
        self.attached = channel.stamps
        words = stamp_words(channel.bodies)
        self.seqs, self.times_ns = words[:, 1], words[:, 2:]
        self.bodies = [body.data for body in channel.bodies[: self._single]]

    def stamp_few(self, first_seq: int, intended_ns: list[int], sent_ns: int) -> None:
        for index, due_ns in enumerate(intended_ns):
            STAMP_NUMBERS.pack_into(self.bodies[index], STAMP_NUMBERS_AT, first_seq + index, due_ns, sent_ns)

    def stamp(self, seqs: Int64s, intended_ns: Int64s) -> None:
        """Everything but the send time."""
        count = len(seqs)
        self.seqs[:count] = seqs
        self.times_ns[:count, 0] = intended_ns

    def stamp_sent(self, seqs: Int64s, intended_ns: Int64s | int | None, sent_ns: int) -> None:
        """Everything; without an intended time, the send time takes its place."""
        count = len(seqs)
        self.seqs[:count] = seqs
        if intended_ns is None:
            self.times_ns[:count] = sent_ns
        else:
            self.times_ns[:count, 0] = intended_ns
            self.times_ns[:count, 1] = sent_ns
