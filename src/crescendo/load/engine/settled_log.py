"""How do outcomes become rows?

Ranges of messages that were sent together and settled together are one row each. Messages that were shed have a row
here as well: they have no other.
"""

from crescendo.load.engine.in_flight import SettledRange, SettledRanges
from crescendo.load.engine.send_window import SendWindow
from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.record.schema import SETTLED, Settlement
from crescendo.record.writer import RowSink


class SettledLog:
    """Rows about the settled messages of one connection."""

    def __init__(self, number: int, log: RowSink, window: SendWindow) -> None:
        self._number = number
        self._log = log
        self._window = window

    def add(self, outcome: SettledMessages, settled_ns: int) -> tuple[int, int]:
        """Record an outcome. Returns how many messages it settled, and how long the last of them took."""
        settlement = int(outcome.settlement)
        match self._window.settle(outcome.seqs):
            case SettledRange(first, last, sent_ns):
                self._log.append_one(SETTLED, self._number, first, last, sent_ns, settled_ns, settlement)
                return last - first + 1, settled_ns - sent_ns
            case SettledRanges(messages, firsts, lasts, sent):
                self._log.append(SETTLED, len(sent), self._number, firsts, lasts, sent, settled_ns, settlement)
                return messages, settled_ns - int(sent[-1])
        return 0, 0

    def add_shed(self, shed: range, now_ns: int) -> None:
        """These messages were due and will never be sent."""
        if shed:
            self._log.append_one(
                SETTLED, self._number, shed.start, shed.stop - 1, now_ns, now_ns, int(Settlement.SHED)
            )  # fmt: skip
