"""What do two OpenWire peers agree on before the first command?

The lower of both versions, the smaller maximum frame size, and the shorter time of silence. We refuse tight encoding
and the cache, so neither is ever used, and insist on lengths before frames. Pure arithmetic over both WireFormatInfos.
"""

from typing import Any, NamedTuple

from crescendo.model.errors import PeerError
from crescendo.wire.openwire.control_commands import MAGIC, WireFormatInfo
from crescendo.wire.openwire.frames import MAX_FRAME_BYTES
from crescendo.wire.openwire.primitive_map import decode_map, encode_map

FIRST_VERSION, LAST_VERSION = 1, 12
PROVIDER = "Crescendo"
_MIN_MAX_FRAME_BYTES = 1024
_NO_LIMIT = 2**63 - 1


class Proposal(NamedTuple):
    """What we can do."""

    version: int = LAST_VERSION
    max_frame_bytes: int = MAX_FRAME_BYTES
    inactivity_ms: int = 0  # how long either peer may be silent; 0 is forever


class Agreement(NamedTuple):
    """The negotiated settings, from our point of view."""

    version: int
    max_frame_bytes: int  # the largest frame that either peer may send
    inactivity_ms: int  # how long either peer may be silent; 0 is forever
    provider: str  # what the peer calls itself


def wire_format_info(ours: Proposal, host: str = "") -> WireFormatInfo:
    """What we propose, as the first command."""
    terms: dict[str, Any] = {
        "StackTraceEnabled": False,
        "TcpNoDelayEnabled": True,
        "CacheEnabled": False,
        "SizePrefixDisabled": False,
        "TightEncodingEnabled": False,
        "MaxInactivityDuration": ours.inactivity_ms,
        "MaxInactivityDurationInitalDelay": ours.inactivity_ms,  # spelt like this in the protocol
        "MaxFrameSize": ours.max_frame_bytes,
        "ProviderName": PROVIDER,
    }
    if host:
        terms["Host"] = host
    return WireFormatInfo(MAGIC, ours.version, encode_map(terms))


def agreed(ours: Proposal, theirs: WireFormatInfo) -> Agreement:
    """What follows from our proposal and theirs."""
    if theirs.magic != MAGIC:
        raise PeerError(
            f"the system introduces itself as {theirs.magic!r}, not as {MAGIC!r}; is this an OpenWire port?"
        )
    if theirs.version < FIRST_VERSION:
        raise PeerError(f"the system proposes version {theirs.version} of OpenWire, which does not exist")
    terms = decode_map(theirs.properties)
    largest = _number(terms, "MaxFrameSize") or _NO_LIMIT
    if largest < _MIN_MAX_FRAME_BYTES:
        raise PeerError(f"the system accepts frames of at most {largest} bytes, too few for any message")
    silence_ms = _number(terms, "MaxInactivityDuration")
    return Agreement(
        min(ours.version, theirs.version),
        min(ours.max_frame_bytes, largest),
        min(ours.inactivity_ms, silence_ms) if ours.inactivity_ms and silence_ms else 0,
        str(terms.get("ProviderName") or ""),
    )


def _number(terms: dict[str, Any], name: str) -> int:
    """A term that is a number of at least 0; 0 if there is none."""
    value = terms.get(name)
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else 0
