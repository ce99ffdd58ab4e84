"""Which of our messages has the broker answered, and which answer is new?

For protocols without credit for messages, in which every message may ask for a response: OpenWire and Core. Messages
are numbered from 0 in the order of sending; a response names one of them. Artemis answers an OpenWire message that it
need not store twice, so a repeated answer is ignored. Answers may arrive in any order within the window.
"""

import numpy as np
import numpy.typing as npt

from crescendo.model.errors import PeerError

SIZE = 65_536
"""Without a bound, a broker that reads fast and stores slowly would fill our memory."""
RESPONSE_NUMBERS = 1 << 31
"""In responses messages are numbered from 0 up to this, and then from 0 again."""
_WAITING = b"\x01"


class ResponseWindow:
    """The messages of one connection that may still be answered."""

    def __init__(self, size: int = SIZE) -> None:
        self.sent = 0
        self._size = size
        self._oldest = 0  # every message before this one is answered
        self._waiting = bytearray(size)  # by number modulo size
        self._column = np.frombuffer(self._waiting, np.uint8)

    @property
    def room(self) -> int:
        """How many messages may be sent now."""
        return self._size - (self.sent - self._oldest)

    def send(self, count: int) -> None:
        """The next `count` messages were sent."""
        first = self.sent % self._size
        self._column[first : first + count] = 1
        if first + count > self._size:
            self._column[: first + count - self._size] = 1
        self.sent += count

    def answered(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The messages with these numbers are answered; returns the numbers of those that were not before."""
        last = self.sent - 1
        found = last - (last - numbers) % RESPONSE_NUMBERS
        if int(found.min()) < 0:
            raise PeerError(f"a response to message {int(numbers[found.argmin()])}; {self.sent} were sent")
        found = found[found >= self._oldest]
        found = found[self._column[found % self._size] != 0]
        if len(found) > 1 and not (np.diff(found) > 0).all():
            found = np.unique(found)
        self._column[found % self._size] = 0
        self._advance()
        return found

    def _advance(self) -> None:
        """Move the start of the window up to the oldest message that is not answered."""
        while self._oldest < self.sent:
            low = self._oldest % self._size
            high = min(low + self.sent - self._oldest, self._size)
            at = self._waiting.find(_WAITING, low, high)
            if at >= 0:
                self._oldest += at - low
                return
            self._oldest += high - low
