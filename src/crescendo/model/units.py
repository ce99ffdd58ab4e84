"""How are durations, sizes and extents written, and what exactly do they mean?

Each value keeps one exact integer. Parsing is strict: a number without a unit is rejected where the unit decides the
meaning, because `30` could be seconds or messages, and a wrong guess runs the wrong experiment.
"""

import re
from typing import Any

_NS_PER_UNIT = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_BYTES_PER_UNIT = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_BITS_PER_UNIT = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_COUNT = re.compile(r"(-?[0-9]+)(?:\s+messages?)?")
_MESSAGES = " messages"
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]*)\s*")

DURATION_PATTERN = rf"\s*\d+(?:\.\d+)?\s*(?:{'|'.join(_NS_PER_UNIT)})\s*"
SIZE_PATTERN = rf"\s*\d+(?:\.\d+)?\s*(?:{'|'.join(_BYTES_PER_UNIT)})\s*"
LINE_RATE_PATTERN = rf"\s*\d+(?:\.\d+)?\s*(?:{'|'.join(_BITS_PER_UNIT)})\s*"
SHARE_PATTERN = r"\s*\d+(?:\.\d+)?\s*%\s*"
"""For the schema of files, which other programs read."""

MAX_DURATION_NS = 2**60
"""36 years. Sums of a few such durations fit 64 bits."""

MAX_COUNT = 10**15
DURATION_HINT = "a duration such as 500ms, 30s, 15m or 2h"
SIZE_HINT = "a size such as 256, 10KB or 1MiB"
LINE_RATE_HINT = "a bit rate such as 20Mbit, 512kbit or 1Gbit (per second)"


class Duration(int):
    """A length of time in whole nanoseconds."""

    @classmethod
    def parse(cls, text: object) -> "Duration":
        if text == 0 and not isinstance(text, bool):
            return cls(0)  # zero needs no unit
        match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
        if match is None or match[2] not in _NS_PER_UNIT:
            raise ValueError(f"{text!r} is not {DURATION_HINT}")
        duration = cls(_scaled(match[1], _NS_PER_UNIT[match[2]]))
        if duration > MAX_DURATION_NS:
            raise ValueError(f"{text!r} is longer than 36 years")
        return duration

    def __str__(self) -> str:
        for unit in ("h", "m", "s", "ms", "us"):
            if self and self % _NS_PER_UNIT[unit] == 0:
                return f"{self // _NS_PER_UNIT[unit]}{unit}"
        return f"{int(self)}ns" if self else "0s"


class Size(int):
    """A number of payload bytes."""

    @classmethod
    def parse(cls, text: object) -> "Size":
        match = _QUANTITY.fullmatch(str(text)) if isinstance(text, int | str) and not isinstance(text, bool) else None
        if match is None or match[2] not in _BYTES_PER_UNIT:
            raise ValueError(f"{text!r} is not {SIZE_HINT} (KB is 1000 bytes, KiB is 1024)")
        return cls(_scaled(match[1], _BYTES_PER_UNIT[match[2]]))

    def __str__(self) -> str:
        return str(int(self))


class LineRate(int):
    """Bits per second of a link."""

    @classmethod
    def parse(cls, text: object) -> "LineRate":
        match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
        if match is None or match[2] not in _BITS_PER_UNIT:
            raise ValueError(f"{text!r} is not {LINE_RATE_HINT}")
        return cls(_scaled(match[1], _BITS_PER_UNIT[match[2]]))

    def __str__(self) -> str:
        for unit in ("Gbit", "Mbit", "kbit"):
            if self and self % _BITS_PER_UNIT[unit] == 0:
                return f"{self // _BITS_PER_UNIT[unit]}{unit}"
        return f"{int(self)}bit"


class Share(float):
    """A part of a whole, written in percent."""

    @classmethod
    def parse(cls, text: object) -> "Share":
        match = _PERCENT.fullmatch(text) if isinstance(text, str) else None
        if text == 0 and not isinstance(text, bool):
            return cls(0)
        if match is None or float(match[1]) > 100:
            raise ValueError(f"{text!r} is not a share of 0 % to 100 %, such as 1% or 0.5%")
        return cls(float(match[1]) / 100)

    def __str__(self) -> str:
        return f"{float(self) * 100:.12g}%"


class Extent(str):
    """How long a phase lasts, as written: a duration, or a number of messages per connection.

    A count without its unit is read, because old recordings have it; files that people write must say which they mean.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Extent":
        counted = _COUNT.fullmatch(str(text)) if isinstance(text, int | str) and not isinstance(text, bool) else None
        if counted is not None:
            count = int(counted[1])
            if not 1 <= count <= MAX_COUNT:
                wanted = "at most 10^15" if count > 1 else "at least 1"
                raise ValueError(f"{text!r} is not a valid extent; write a count of {wanted}, or {DURATION_HINT}")
            return cls(f"{count}{_MESSAGES}")
        try:
            return cls(Duration.parse(text))
        except ValueError:
            wanted = f"{DURATION_HINT}, nor a count of messages per connection such as '5000 messages'"
            raise ValueError(f"{text!r} is neither {wanted}") from None

    @staticmethod
    def is_ambiguous(written: object) -> bool:
        """Whether this is a number without a unit, which could be seconds or messages."""
        return (isinstance(written, int) and not isinstance(written, bool)) or (
            isinstance(written, str) and written.strip().isdecimal()
        )

    @property
    def messages(self) -> int | None:
        """Messages per connection, when the extent is a count."""
        counted = _COUNT.fullmatch(self)
        return None if counted is None else int(counted[1])

    @property
    def duration(self) -> Duration | None:
        return None if self.messages is not None else Duration.parse(str(self))

    def plain(self) -> str:
        """As it is written to a document, which says what a number counts."""
        return str(self) if self.messages is None else f"{self.messages}{_MESSAGES}"


def parse_unit(kind: type[Any], value: object) -> Any:
    """msgspec's decode hook: parse a value from the file into the unit type of its field."""
    if hasattr(kind, "parse"):
        return kind.parse(value)
    raise NotImplementedError(kind)


def format_unit(value: object) -> Any:
    """msgspec's encode hook: write a unit as a user would write it."""
    if hasattr(value, "plain"):
        return value.plain()
    if hasattr(type(value), "parse"):
        return str(value)
    raise NotImplementedError(type(value))


def format_ns(ns: float) -> str:
    """A human-readable time, in the unit that fits it."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= 0.9995 * scale:  # 999.6 µs would be rounded to 1e+03 µs
            return f"{ns / scale:.3g} {unit}" if abs(ns) < 1e3 * scale else f"{ns / scale:,.0f} {unit}"
    return f"{ns:.0f} ns"


def format_count(value: float) -> str:
    return f"{value:,.0f}"


def format_rate(value: float) -> str:
    """A rate without its unit; below 100 with one decimal."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}".removesuffix(".0")


def _scaled(number: str, unit: int) -> int:
    # Exact in integers: 0.1 s is 100,000,000 ns, not the nearest float.
    whole, _, fraction = number.partition(".")
    divisor = int("1" + "0" * len(fraction))
    scaled, remainder = divmod(int(whole + fraction) * unit, divisor)
    if remainder:
        raise ValueError(f"{number} is finer than the smallest unit")
    return scaled
