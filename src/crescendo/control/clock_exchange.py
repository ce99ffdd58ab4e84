"""How do two hosts exchange times of their clocks?

Over a UDP socket of their own, because a control broker between them would cost a millisecond. Every packet carries a
random number and an authentication code under a key of the lab, so that no stranger sets a clock or uses the responder
for his floods. The answering side reads its clock after the packet has arrived and before the answer leaves; what that
does not cover counts as delay, and delay widens the bound. Estimates nothing.
"""

import contextlib
import hmac
import secrets
import socket
import struct
import threading
import time
from pathlib import Path

from crescendo.control.trust import NoteScope
from crescendo.model.clock_estimate import ClockExchange
from crescendo.model.errors import PeerError

EXCHANGES_PER_BURST = 50
_NONCE_BYTES, _TAG_BYTES = 8, 16
_ANSWER = struct.Struct(">qq")
_REQUEST_BYTES = _NONCE_BYTES + _TAG_BYTES
_ANSWER_BYTES = _NONCE_BYTES + _ANSWER.size + _TAG_BYTES
_TIMEOUT_S = 0.1
_MAX_UNANSWERED = 5
_KEY = b"crescendo clock"


def clock_id() -> str:
    """Names the monotonic clock of this process: the boot of the machine, and the time namespace in it."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    return f"{socket.gethostname()} {secrets.token_hex(8)}"  # unknown, so it equals no other


class ClockResponder:
    """Answers with the times of this host's clock, in a thread of its own, until it is closed."""

    def __init__(self, address: str, scope: NoteScope) -> None:
        self._key = _key_of(scope)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="clock", daemon=True)
        self._closing = False
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._closing:
            try:
                request, sender = self._socket.recvfrom(_REQUEST_BYTES + 1)
                received_ns = time.monotonic_ns()
                nonce, tag = request[:_NONCE_BYTES], request[_NONCE_BYTES:]
                if len(request) != _REQUEST_BYTES or not hmac.compare_digest(_tag(self._key, nonce), tag):
                    continue
                body = nonce + _ANSWER.pack(received_ns, time.monotonic_ns())
                self._socket.sendto(body + _tag(self._key, body), sender)
            except OSError:  # the asker is gone; there are others
                continue


class ClockProbe:
    """Asks the responder of one host."""

    def __init__(self, address: str, port: int, scope: NoteScope) -> None:
        self._key = _key_of(scope)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(_TIMEOUT_S)
        try:
            self._socket.connect((address, port))
        except OSError as err:
            self._socket.close()
            raise PeerError(f"{address}:{port}: {err.strerror}") from err

    def burst(self, count: int = EXCHANGES_PER_BURST) -> list[ClockExchange]:
        """Several exchanges, one after the other. Those without an answer are left out."""
        found: list[ClockExchange] = []
        unanswered = 0
        for _ in range(count):
            exchange = self._exchange()
            if exchange is not None:
                found.append(exchange)
            else:
                unanswered += 1
                if unanswered >= _MAX_UNANSWERED:
                    break
        return found

    def close(self) -> None:
        self._socket.close()

    def _exchange(self) -> ClockExchange | None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        request = nonce + _tag(self._key, nonce)
        try:
            sent_ns = time.monotonic_ns()
            self._socket.send(request)
            while True:
                answer = self._socket.recv(_ANSWER_BYTES + 1)
                received_ns = time.monotonic_ns()
                body, tag = answer[:-_TAG_BYTES], answer[-_TAG_BYTES:]
                if answer[:_NONCE_BYTES] == nonce and hmac.compare_digest(_tag(self._key, body), tag):
                    break
                if received_ns - sent_ns > _TIMEOUT_S * 1e9:  # late answers to earlier requests, or a stranger
                    return None
        except OSError:
            return None
        other_received_ns, other_sent_ns = _ANSWER.unpack(body[_NONCE_BYTES:])
        return ClockExchange(sent_ns, other_received_ns, other_sent_ns, received_ns)


def _key_of(scope: NoteScope) -> bytes:
    return hmac.digest(scope.key, _KEY, "sha256")


def _tag(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_TAG_BYTES]
