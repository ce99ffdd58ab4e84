"""How are the timestamps of other tools converted to nanoseconds since 1970?

Column expressions; null where the text is not a time. Values are limited before they are multiplied, because an
overflow would fail the whole job instead of one line. Times without a zone are read as UTC: none of these files names a
zone.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

SECOND_NS, MS_NS, US_NS = 10**9, 10**6, 10**3
_LAST_S = 9_223_372_036  # the last second that 64 bits of nanoseconds can hold, in 2262

_EPOCH = r"^([0-9]{10}(\.[0-9]{1,9})?|[0-9]{13}|[0-9]{16}|[0-9]{19})$"
"""Seconds, milliseconds, microseconds or nanoseconds since 1970: from 2001 to 2286 they differ by three digits each."""


def whole_number(text: Column, digits: int = 18) -> Column:
    """An unsigned number of at most `digits` digits; null for anything else."""
    return F.when(text.rlike(f"^[0-9]{{1,{digits}}}$"), text).cast("long")


def epoch_ms(text: Column) -> Column:
    return F.try_multiply(whole_number(text), F.lit(MS_NS))


def epoch_by_digits(text: Column) -> Column:
    """Seconds (with or without a fraction), ms, µs or ns since 1970, distinguished by the number of digits."""
    digits = F.length(F.substring_index(text, ".", 1))
    unit_ns = F.when(digits == 10, SECOND_NS).when(digits == 13, MS_NS).when(digits == 16, US_NS).otherwise(1)
    # Decimals, because a float cannot represent nanoseconds since 1970.
    exact = F.when(text.rlike(_EPOCH), text).try_cast("decimal(28,9)")
    return (exact * unit_ns.cast("decimal(10,0)")).try_cast("long")


def calendar_time(text: Column, pattern: str) -> Column:
    """A date and time without a fraction, in a pattern of Java's DateTimeFormatter."""
    seconds = F.unix_seconds(F.try_to_timestamp(text, F.lit(pattern)))
    return F.when((seconds >= 0) & (seconds < F.lit(_LAST_S)), seconds * F.lit(SECOND_NS))


def unpadded_us(text: Column) -> Column:
    """A fraction of a second without leading zeros: 2102 is 2,102 µs, not 0.2102 s."""
    return whole_number(text, 6) * F.lit(US_NS)


def milliseconds_then_us(text: Column) -> Column:
    """Three digits of milliseconds, then the microseconds, with or without leading zeros."""
    us = F.when(F.length(text) > 3, whole_number(F.substring(text, 4, 3))).otherwise(F.lit(0))
    return F.when(text.rlike("^[0-9]{3,6}$"), whole_number(F.substring(text, 1, 3)) * MS_NS + us * F.lit(US_NS))
