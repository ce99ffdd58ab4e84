"""How is one STOMP frame written and read?

The exact scalar codec: a command, headers, a body, a NUL. The reader scans no byte twice, however small the chunks in
which a frame arrives. Every length is limited, the first of repeated headers wins, and a carriage return at the end of
a line is dropped in every version: 1.0 and 1.1 do not define it, but no peer sends it as data. Checks no command.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.stomp.escaping import Version, escape, escape_name, unescape

MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 1000
MAX_BODY_BYTES = 128 * 2**20
MAX_COMMAND_BYTES = 32
HEARTBEAT = b"\n"
CONTENT_LENGTH = "content-length"

_LINE_FEED, _RETURN = 0x0A, 0x0D
_UNESCAPED = {"CONNECT", "STOMP", "CONNECTED"}
_HEAD_END = re.compile(rb"\n\r?\n")
_NO_LENGTH = -1  # the body ends at the first NUL


class Frame(NamedTuple):
    """One frame. `body` is a view into the receive buffer, valid until more is received."""

    command: str
    headers: dict[str, str]
    body: memoryview | bytes = b""


class LocatedFrame(NamedTuple):
    """A frame and its position in the buffer; `end` is after its NUL."""

    frame: Frame
    start: int
    body_start: int
    end: int


def encode_frame(
    command: str, headers: Mapping[str, str], body: bytes | memoryview = b"", *, version: Version, sized: bool = False
) -> bytes:
    """Encode one frame; `sized` adds content-length, which a body with a NUL requires."""
    if CONTENT_LENGTH in headers:
        raise ConfigError(f"{CONTENT_LENGTH} is computed, not given")
    octets = bytes(body)
    if not sized and b"\0" in octets:
        raise ConfigError("a body with a NUL needs a content-length")
    rules = Version.V1_0 if command in _UNESCAPED else version
    lines = [command]
    lines += [f"{escape_name(name, rules)}:{escape(value, rules)}" for name, value in headers.items()]
    if sized:
        lines.insert(1, f"{CONTENT_LENGTH}:{len(octets)}")
    try:
        return b"%b\n\n%b\0" % ("\n".join(lines).encode(), octets)
    except UnicodeEncodeError:
        raise ConfigError("this text cannot be encoded as UTF-8, as a STOMP header requires") from None


class _Head(NamedTuple):
    command: str
    headers: dict[str, str]
    body_offset: int
    body_length: int


class Reader:
    """Finds frames in a growing buffer. Offsets are relative to the frame, because its bytes may be moved."""

    def __init__(self, *, max_header_bytes: int = MAX_HEADER_BYTES, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.version = Version.V1_2
        self._max_header_bytes = max_header_bytes
        self._max_body_bytes = max_body_bytes
        self._head: _Head | None = None
        self._searched = 0

    def forget(self) -> None:
        """Discard the state of the frame at the front: the batch path has consumed it."""
        self._head = None
        self._searched = 0

    def read(self, buffer: bytearray, start: int, end: int) -> LocatedFrame | None:
        """The frame that starts here, or None when more bytes are needed."""
        head = self._head or self._read_head(buffer, start, end)
        if head is None:
            return None
        body_start = start + head.body_offset
        if head.body_length == _NO_LENGTH:
            body_end = buffer.find(0, start + self._searched, end)
            # Enforce the limit even if the NUL has arrived, so that chunking makes no difference.
            if (end if body_end < 0 else body_end) - body_start > self._max_body_bytes:
                raise PeerError(f"a body of more than {self._max_body_bytes} bytes")
            if body_end < 0:
                self._searched = end - start
                return None
        else:
            body_end = body_start + head.body_length
            if body_end >= end:
                return None
            if buffer[body_end]:
                raise PeerError(f"a body that does not end after the {head.body_length} bytes it announced")
        self._head = None
        self._searched = 0
        body = memoryview(buffer)[body_start:body_end] if body_end > body_start else b""
        return LocatedFrame(Frame(head.command, head.headers, body), start, body_start, body_end + 1)

    def _read_head(self, buffer: bytearray, start: int, end: int) -> _Head | None:
        limit = start + self._max_header_bytes
        found = _HEAD_END.search(buffer, start + self._searched, min(end, limit))
        if found is None:
            if buffer.find(_LINE_FEED, start, min(end, start + MAX_COMMAND_BYTES)) < 0:
                self._check_start(buffer[start : min(end, start + MAX_COMMAND_BYTES)])
            if end >= limit:
                raise PeerError(f"headers of more than {self._max_header_bytes} bytes")
            self._searched = max(end - start - 2, 0)
            return None
        command, headers = self._decode_head(buffer[start : found.start()])
        offset = found.end() - start
        length = self._body_length(headers)
        self._searched = offset
        self._head = _Head(command, headers, offset, length)
        return self._head

    def _check_start(self, octets: bytearray) -> None:
        """A peer that does not speak STOMP might never send a line feed, and we would wait forever."""
        if len(octets) >= MAX_COMMAND_BYTES or 0 in octets:
            raise PeerError(f"{bytes(octets)!r} is not the start of a STOMP frame; is this a STOMP port?")

    def _decode_head(self, octets: bytearray) -> tuple[str, dict[str, str]]:
        try:
            text = octets.decode()
        except UnicodeDecodeError:
            raise PeerError("headers that are not UTF-8") from None
        if "\r" in text:
            text = "\n".join(line.removesuffix("\r") for line in text.split("\n"))
            if "\r" in text:  # 1.2 escapes it, and the other versions could not send it back
                raise PeerError("a carriage return within a header")
        if "\0" in text:
            raise PeerError("a frame that ends within its headers")
        lines = text.split("\n")
        if len(lines) > MAX_HEADERS:
            raise PeerError(f"more than {MAX_HEADERS} headers")
        command = lines[0]
        try:
            # In reverse, so that the first of repeated headers wins.
            headers: dict[str, str] = dict([line.split(":", 1) for line in lines[:0:-1]])
        except ValueError:
            raise PeerError("a header without a colon") from None
        if "\\" in text and command not in _UNESCAPED:
            headers = self._unescaped(lines)
        return command, headers

    def _unescaped(self, lines: list[str]) -> dict[str, str]:
        # Two spellings may encode the same name, so the first must be chosen after unescaping.
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.setdefault(unescape(name, self.version), unescape(value, self.version))
        return headers

    def _body_length(self, headers: dict[str, str]) -> int:
        text = headers.get(CONTENT_LENGTH)
        if text is None:
            return _NO_LENGTH
        text = text.strip(" ")
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise PeerError(f"{text[:40]!r} is not a valid content-length")
        length = int(text)
        if length > self._max_body_bytes:
            raise PeerError(f"a body of {length} bytes where {self._max_body_bytes} is the limit")
        return length


def skip_line_ends(buffer: bytearray, start: int, end: int) -> int:
    """The position after the line ends between two frames, which are heart-beats."""
    while start < end and buffer[start] in {_LINE_FEED, _RETURN}:
        start += 1
    return start
