"""How are serial numbers that wrap at 2^32 compared?

Ids and counts of AMQP 1.0 are serial numbers (RFC 1982): the later of two is the one that is less than 2^31 ahead.
"""

SERIAL_MASK = 0xFFFF_FFFF
HALF_RANGE = 2**31 - 1


def serial_difference(one: int, other: int) -> int:
    """How far one number is ahead of another; negative when it is behind."""
    return ((one - other + HALF_RANGE + 1) & SERIAL_MASK) - HALF_RANGE - 1


def serial_distance(later: int, earlier: int) -> int:
    """How far one number is ahead of another; 0 when it is behind."""
    return max(serial_difference(later, earlier), 0)
