"""How are MLMQ's requests and answers framed on a byte stream?

In frames, the same in both directions, whatever the chunking:

    length   i32   bytes after this field, big-endian like all numbers here
    version  u8    1
    flags    u8    1: a request that asks for times, or an answer that carries them
    type     u16   the type of the value; requests are below 64, answers from 64
    request  u64   chosen by the client, repeated in the answer
    times    6×u64 ns, only in an answer with flag 1
    body           the value in MessagePack

A frame that violates the limits ends the connection (`FrameError`): nothing after it can be trusted. A complete frame
without a valid value is an event (`Unreadable`): it can be refused, and the stream continues. The caller supplies the
type number of each value. Knows no operations, no sockets and no clock.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from crescendo.model.errors import PeerError

VERSION: Final = 1
FIRST_ANSWER: Final = 64
MAX_FRAME_BYTES: Final = 256 * 1024  # a hundred messages of 2,000 bytes fit

_WITH_TIMES = 1
_HEADER = struct.Struct("!iBBHQ")
_TIMES = struct.Struct("!6Q")
_LENGTH_BYTES = 4
_MIN_LENGTH = _HEADER.size - _LENGTH_BYTES
_LARGEST_REQUEST = 2**64 - 1


class FrameError(PeerError):
    """The stream can no longer be read. `request` is the number of the broken frame, if that much had arrived."""

    def __init__(self, text: str, request: int | None = None, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.request = request
        self.too_large = too_large


class Times(NamedTuple):
    """Where a request spent its time at the broker. `wait_ns`: how long a dequeue waited as requested."""

    receive_ns: int
    queue_wait_ns: int
    pool_wait_ns: int
    database_ns: int
    send_ns: int
    wait_ns: int = 0


class Frame(NamedTuple):
    """One request or answer."""

    request: int
    value: Any
    wants_times: bool = False  # requests only
    times: Times | None = None  # answers only


class Unreadable(NamedTuple):
    """A complete frame without a valid value; `unknown` means that its type is not known here."""

    request: int
    unknown: bool
    text: str


class Codec:
    """Values to bytes, and bytes to values. One per connection."""

    def __init__(self, types: Mapping[int, type], *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._numbers = {kind: number for number, kind in types.items()}
        self._decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {
            number: msgspec.msgpack.Decoder(kind) for number, kind in types.items()
        }
        self._encoder = msgspec.msgpack.Encoder()
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._at = 0
        self._broken: FrameError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes received but not yet returned as frames."""
        return len(self._buffer) - self._at

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the connection. Call `next_frame` until it returns None."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next_frame(self) -> Frame | Unreadable | None:
        """Return one frame, or None when more bytes are needed."""
        if self._broken is not None:
            raise self._broken
        available = len(self._buffer) - self._at
        if available < _LENGTH_BYTES:
            return None
        if available < _HEADER.size:
            # Check the length as soon as it is there: no need to wait for the rest of an invalid header.
            self._check_length(int.from_bytes(self._buffer[self._at : self._at + _LENGTH_BYTES], signed=True), None)
            return None
        length, version, flags, number, request = _HEADER.unpack_from(self._buffer, self._at)
        self._check_length(length, request)
        if version != VERSION:
            raise self._fail(f"the peer uses version {version} of MLMQ's protocol, we use {VERSION}", request)
        end = self._at + _LENGTH_BYTES + length
        if len(self._buffer) < end:
            return None
        start, self._at = self._at + _HEADER.size, end
        return self._read(number, flags, request, start, end)

    def encode(self, request: int, value: Any, *, wants_times: bool = False, times: Times | None = None) -> bytes:
        """Encode one frame. A value that no peer would accept is our bug: ValueError."""
        number = self._numbers.get(type(value))
        if number is None:
            raise ValueError(f"{type(value).__name__} has no type number")
        if not 0 <= request <= _LARGEST_REQUEST:
            raise ValueError(f"request {request} does not fit 64 bits")
        answer = number >= FIRST_ANSWER
        if wants_times if answer else times is not None:
            raise ValueError("a request asks for times, an answer carries them")
        body = self._encoder.encode(value)
        times_bytes = b"" if times is None else _TIMES.pack(*times)
        length = _MIN_LENGTH + len(times_bytes) + len(body)
        if length > self._max_frame_bytes:
            raise ValueError(f"a frame of {length} bytes; at most {self._max_frame_bytes} are allowed")
        flags = _WITH_TIMES if wants_times or times is not None else 0
        return _HEADER.pack(length, VERSION, flags, number, request) + times_bytes + body

    def _read(self, number: int, flags: int, request: int, start: int, end: int) -> Frame | Unreadable:
        decoder = self._decoders.get(number)
        if decoder is None:
            return Unreadable(request, True, f"type {number} is unknown here")
        if flags & ~_WITH_TIMES:
            return Unreadable(request, False, f"flags {flags} are unknown")
        wants_times, times = bool(flags), None
        if flags and number >= FIRST_ANSWER:
            if end - start < _TIMES.size:
                return Unreadable(request, False, "the frame is too short for the times it announces")
            wants_times, times = False, Times(*_TIMES.unpack_from(self._buffer, start))
            start += _TIMES.size
        try:
            # A copy: a view would keep the buffer from shrinking as long as the error's traceback lives.
            value = decoder.decode(bytes(self._buffer[start:end]))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            return Unreadable(request, False, str(err))
        return Frame(request, value, wants_times, times)

    def _check_length(self, length: int, request: int | None) -> None:
        if length < _MIN_LENGTH:
            raise self._fail(f"a frame announces {length} bytes; the header alone has {_MIN_LENGTH}", request)
        if length > self._max_frame_bytes:
            text = f"a frame announces {length} bytes; at most {self._max_frame_bytes} are allowed"
            raise self._fail(text, request, too_large=True)

    def _fail(self, text: str, request: int | None, *, too_large: bool = False) -> FrameError:
        self._broken = FrameError(text, request, too_large=too_large)
        self._buffer.clear()
        self._at = 0
        return self._broken
