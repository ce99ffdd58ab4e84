"""How large is message n?

One size, about one size (`~256`: up to 5 % more or less), a weighted list of sizes, or the lines of a file, in order
and over again. Deterministic: seed, sender and message number decide, so a run can be repeated exactly.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crescendo.model.regular_file import read_regular
from crescendo.model.units import SIZE_HINT, Size

STAMP_BYTES = 32
"""Every payload begins with a stamp of this size, so no message is smaller."""

MAX_PAYLOAD_BYTES = 64 * 2**20
MAX_FILE_BYTES = 1 << 30
MAX_CHOICES = 1000
_MAX_SPREAD_SIZES = 100_000
_SPREAD = 0.05
_BLOCK = 4096

Sizes = npt.NDArray[np.int64]


class PayloadSize(Size):
    """The payload sizes of a group. As a number: the mean size, or the minimum where the lines of a file decide."""

    written: Any  # as written in the experiment file
    choices: tuple[tuple[int, float], ...]  # sizes and their weights; one entry for a fixed size
    file: str | None

    @classmethod
    def parse(cls, text: object) -> "PayloadSize":
        if isinstance(text, list):
            return cls._of(text, _weighted(text))
        if isinstance(text, dict):
            if set(text) != {"file"} or not isinstance(text["file"], str):
                raise ValueError("a mapping must name the file whose lines are sent: {file: PATH}")
            return cls._of(text, (), text["file"])
        if isinstance(text, str) and text.startswith("~"):
            middle = Size.parse(text[1:])
            reach = int(middle * _SPREAD)
            step = 1 + 2 * reach // _MAX_SPREAD_SIZES  # of large messages, not every size
            sizes = range(middle - reach, middle + reach + 1, step)
            return cls._of(text, tuple((size, 1.0) for size in sizes))
        return cls._of(text, ((Size.parse(text), 1.0),))

    @classmethod
    def fixed(cls, size: int) -> "PayloadSize":
        return cls._of(size, ((size, 1.0),))

    @classmethod
    def _of(cls, written: Any, choices: tuple[tuple[int, float], ...], file: str | None = None) -> "PayloadSize":
        total = sum(share for _, share in choices)
        payload = cls(round(sum(size * share for size, share in choices) / total) if choices else STAMP_BYTES)
        payload.written, payload.choices, payload.file = written, choices, file
        payload._check()
        return payload

    def _check(self) -> None:
        for size, _ in self.choices:
            if not STAMP_BYTES <= size <= MAX_PAYLOAD_BYTES:
                raise ValueError(
                    f"size {size} is outside {STAMP_BYTES} to {MAX_PAYLOAD_BYTES} bytes; "
                    f"every payload begins with a stamp of {STAMP_BYTES} bytes"
                )

    def plain(self) -> Any:
        return self.written

    @property
    def is_fixed(self) -> bool:
        return len(self.choices) == 1

    @property
    def largest(self) -> int:
        """The largest size; reads the file if there is one."""
        return max((size for size, _ in self.choices), default=STAMP_BYTES + max(map(len, self.lines), default=0))

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines of the file, read when they are first asked for; each is sent after a stamp."""
        if self.file is None:
            return []
        try:
            lines = read_regular(Path(self.file), MAX_FILE_BYTES).splitlines()
        except OSError as err:
            raise ValueError(f"size: {self.file} cannot be read: {err.strerror}") from err
        if not lines:
            raise ValueError(f"size: {self.file} has no lines to send")
        if (longest := max(map(len, lines))) > MAX_PAYLOAD_BYTES - STAMP_BYTES:
            raise ValueError(f"size: {self.file} has a line of {longest} bytes")
        return lines

    def sizes(self, seed: int, sender: int) -> Callable[[int, int], Sizes]:
        """The sizes of messages first to first + count - 1 of one sender."""
        if self.file is not None:
            lengths = np.array([STAMP_BYTES + len(line) for line in self.lines], np.int64)
            return lambda first, count: lengths[np.arange(first, first + count) % len(lengths)]
        sizes = np.array([size for size, _ in self.choices], np.int64)
        if self.is_fixed:
            return lambda first, count: np.broadcast_to(sizes, count)
        shares = np.array([share for _, share in self.choices])
        return _DrawnSizes(sizes, np.cumsum(shares) / shares.sum(), (seed, sender)).between


class _DrawnSizes:
    """Sizes drawn in blocks, each from seed, sender and block number alone."""

    def __init__(self, sizes: Sizes, edges: npt.NDArray[np.float64], key: tuple[int, int]) -> None:
        self._sizes = sizes
        self._edges = edges
        self._key = key
        self._number = -1
        self._kept = sizes

    def between(self, first: int, count: int) -> Sizes:
        last = first + count - 1
        blocks = [self._block(number) for number in range(first // _BLOCK, last // _BLOCK + 1)]
        drawn = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        begin = first % _BLOCK
        return drawn[begin : begin + count]

    def _block(self, number: int) -> Sizes:
        if number != self._number:
            chance = np.random.default_rng([*self._key, 1, number]).random(_BLOCK)
            positions = np.minimum(np.searchsorted(self._edges, chance, side="right"), len(self._sizes) - 1)
            self._number, self._kept = number, self._sizes[positions]
        return self._kept


def _weighted(entries: list[Any]) -> tuple[tuple[int, float], ...]:
    if not 1 <= len(entries) <= MAX_CHOICES:
        raise ValueError(f"a list has 1 to {MAX_CHOICES} entries")
    choices = []
    for entry in entries:
        if not isinstance(entry, dict) or not {"size"} <= set(entry) <= {"size", "weight"}:
            raise ValueError(f"{entry!r} should read {{size: 256, weight: 3}}, with {SIZE_HINT}")
        weight = entry.get("weight", 1)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1e9:
            raise ValueError(f"weight {weight!r} should be a number above 0")
        choices.append((int(Size.parse(entry["size"])), float(weight)))
    return tuple(choices)
