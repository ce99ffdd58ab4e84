"""What do the reason codes of MQTT mean?

MQTT 5 has one list for all packets; MQTT 3.1.1 has five return codes of its own. Only texts: the caller decides what
follows from a code.
"""

from enum import IntEnum

FAILURE = 0x80
"""Codes from here on are failures."""


class Reason(IntEnum):
    """The codes that this package itself uses."""

    SUCCESS = 0x00
    DISCONNECT_WITH_WILL = 0x04
    UNSPECIFIED = 0x80
    MALFORMED = 0x81
    UNSUPPORTED_VERSION = 0x84
    BAD_CREDENTIALS = 0x86
    NOT_AUTHORISED = 0x87
    ID_NOT_FOUND = 0x92


_REASON_TEXTS = {
    0x00: "success",
    0x01: "granted QoS 1",
    0x02: "granted QoS 2",
    0x04: "disconnect with will message",
    0x10: "no matching subscribers",
    0x11: "no subscription existed",
    0x18: "continue authentication",
    0x19: "re-authenticate",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: "client identifier not valid",
    0x86: "bad user name or password",
    0x87: "not authorised",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8C: "bad authentication method",
    0x8D: "keep-alive timeout",
    0x8E: "session taken over",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x91: "packet identifier in use",
    0x92: "packet identifier not found",
    0x93: "receive maximum exceeded",
    0x94: "topic alias invalid",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "administrative action",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
    0x9C: "use another server",
    0x9D: "server moved",
    0x9E: "shared subscriptions not supported",
    0x9F: "connection rate exceeded",
    0xA0: "maximum connect time",
    0xA1: "subscription identifiers not supported",
    0xA2: "wildcard subscriptions not supported",
}

# The return codes of an MQTT 3.1.1 CONNACK -> the reason codes of MQTT 5.
_RETURN_CODES = {1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}


def reason_text(code: int, reason_string: str = "") -> str:
    """The meaning, the number, and the peer's own reason string."""
    text = f"{_REASON_TEXTS.get(code, 'unknown reason')} (0x{code:02x})"
    return f"{text}: {reason_string}" if reason_string else text


def reason_code_of(return_code: int) -> int:
    """The reason code for a return code of MQTT 3.1.1."""
    return _RETURN_CODES.get(return_code, FAILURE)


def return_code_of(code: int) -> int:
    """The return code of MQTT 3.1.1 for a reason code; 'server unavailable' if there is none."""
    if code < FAILURE:
        return 0
    return next((old for old, new in _RETURN_CODES.items() if new == code), 3)
