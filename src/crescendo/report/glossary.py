"""What do the words of a report mean to somebody who does not measure brokers?

The page shows these meanings as tooltips. docs/glossary.md has the same words with the same meanings; a test compares
them. Also finds the words in a text; decides nothing about their look.
"""

import re

from markupsafe import Markup, escape

MEANINGS = {
    "backlog": "messages sent and not yet received, at one time",
    "bound": "the limit that a check compares a measured value with",
    "ceiling": "the highest rate that this machine's load generator reached against a null server",
    "clock bound": "how far the clocks of the machines may be apart; 0 with one clock",
    "corrupt": "received with damaged content",
    "drain": "the time after the last message is due in which receivers may still receive",
    "drift": "a rate, latency or backlog that rises or falls while it is measured",
    "duplicated": "received more often than once; every delivery after the first counts",
    "generator": "the sending and receiving side of Crescendo, as opposed to the system",
    "intended time": "when a message should be sent according to the schedule",
    "jitter": "the difference between consecutive transfer times at one receiver",
    "lateness": "sent time minus intended time: how late the generator was, or how long the system held it back",
    "Little's law": "in a steady system, messages inside = rate × time inside; if it holds, the counts and times agree",
    "lost": "owed and not delivered, although nothing was arriving any more; acknowledged and unacknowledged losses"
    " are counted apart",
    "lost acked": "lost although the system had acknowledged the message: it broke a promise",
    "lost unacked": "lost before the system acknowledged the message: no promise was broken",
    "offered": "the rate that the schedule asks for, whether or not the system keeps up",
    "outage": "a time in which deliveries stopped although messages were due",
    "owed": "messages that a subscription should receive",
    "own delay": "the part of a message's delay that the generator caused: from its intended to its send time, less"
    " the holds in between",
    "p-value": "how likely chance alone shows such a trend; below 0.05 it is taken for real",
    "p50": "half of the messages were at least this fast: the median",
    "p99": "99 of 100 messages were at least this fast",
    "p99.9": "999 of 1000 messages were at least this fast",
    "r²": "how much of the variation a straight line explains: 1 is all of it",
    "relaxation time": "the time in which a system forgets its state by 1/e: how long latencies that follow each"
    " other stay alike",
    "reordered": "received after a later message of the same sender",
    "response": "receive time minus intended time: what a user waits, queueing before the send included",
    "settle": "in latencies: settlement time minus send time",
    "settled": "acknowledged by the system",
    "steady": "neither rising nor falling by more than chance explains",
    "stray": "a message whose stamp belongs to another run",
    "subscription": "who is owed messages: the receivers of a queue together, or each receiver of a topic",
    "sustained rate": "messages per second that arrived in the measure phase; copies of a topic's message count once",
    "transfer": "receive time minus send time",
    "undelivered": "owed, and still arriving when the drain ended, or still in the queue: neither delivered nor lost",
    "unrecorded": "received, although the sender's row is missing",
    "validity": "which of the evidence may be believed, and why",
}

_ALSO = {"clock error bound": "clock bound", "outages": "outage", "p": "p-value"}
"""Other spellings in headings of tables."""

_LOOKED_UP = {name.lower(): meaning for name, meaning in MEANINGS.items()}
_LOOKED_UP |= {other: MEANINGS[word] for other, word in _ALSO.items()}
_IN_TEXT = re.compile(
    r"(?<![\w./])("
    + "|".join(re.escape(word) for word in sorted(MEANINGS, key=len, reverse=True))
    + r")(?![\w.]\w|\w)",
    re.IGNORECASE,
)
_NOT_IN_TEXT = {"bound", "corrupt", "lost", "settled", "offered", "steady", "generator", "drain", "subscription"}
"""Plain enough in a sentence; as the heading of a column they are explained."""


def term(text: str) -> Markup:
    """A heading; with a tooltip if it is a word of the glossary."""
    meaning = _LOOKED_UP.get(text.lower())
    return Markup(escape(text)) if meaning is None else _explained(text, meaning)  # noqa: S704


def explain_terms(text: str) -> Markup:
    """A sentence; the first occurrence of each word of the glossary gets a tooltip."""
    seen: set[str] = set()
    parts, done = [], 0
    for match in _IN_TEXT.finditer(text):
        word = match[0].lower()
        if word in seen or word in _NOT_IN_TEXT:
            continue
        seen.add(word)
        parts += [escape(text[done : match.start()]), _explained(match[0], _LOOKED_UP[word])]
        done = match.end()
    return Markup("").join([*parts, escape(text[done:])])


def _explained(word: str, meaning: str) -> Markup:
    return Markup('<abbr title="{}">{}</abbr>').format(meaning, word)
