"""How do numbers count that go round at 2^32?

Ids and counts of AMQP 1.0 are serial numbers (RFC 1982): of two of them, the one less than half a round ahead is later.
"""

SERIAL = 0xFFFF_FFFF
HALF_ROUND = 2**31 - 1


def ahead(later: int, earlier: int) -> int:
    """How far one number lies ahead of another; 0 when it lies behind."""
    distance = (later - earlier) & SERIAL
    return distance if distance <= HALF_ROUND else 0
