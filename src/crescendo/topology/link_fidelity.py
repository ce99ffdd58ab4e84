"""What does a way through a network do to a message?

Messages with bodies of every section, with properties of several types and with a header are compared one by one with
what arrives: which sections, which properties, in which order, how often. Every message carries a mark that is found
even in a body that was mangled. Pure: it neither sends nor receives.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import Struct

from crescendo.client.sections import MessageSections, sections_of
from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.performatives import Header
from crescendo.wire.amqp10.types import Int, Long

DATA, TEXT_VALUE, BINARY_VALUE, MAP_VALUE, LIST_SEQUENCE = "data", "text value", "binary value", "map value", "sequence"
BODY_KINDS = (DATA, TEXT_VALUE, BINARY_VALUE, MAP_VALUE, LIST_SEQUENCE)
MANGLED, WHOLE = "mangled", "message"
_MARK = re.compile(rb"crescendo-link-([0-9a-f]{8})-([0-9]{8})")
_PRIORITY = 7
_FIELDS = {0: "message id", 3: "subject", 5: "correlation id", 6: "content type"}


class BodyFidelity(Struct, frozen=True):
    """What became of the bodies of one kind."""

    sent_as: str
    arrived_as: dict[str, int]  # kind -> messages
    equal: int
    messages: int


class LinkFidelity(Struct, frozen=True):
    """What one way through a network did to messages. Lists are names of properties."""

    source: str
    target: str
    address: str
    sent: int
    arrived: int  # different messages
    lost: int
    duplicated: int
    reordered: int
    bodies: list[BodyFidelity]
    kept: list[str]
    dropped: list[str]
    changed: list[str]
    added: list[str]
    resent: int = 0  # messages that the first node gave back, and that were sent again
    cuts: int = 0  # of the link, while messages crossed it
    invalid: dict[str, int] = {}  # section -> messages in which it was not valid AMQP

    @property
    def is_complete(self) -> bool:
        """Every message once and in order."""
        return not (self.lost or self.duplicated or self.reordered)

    @property
    def is_faithful(self) -> bool:
        """And with nothing changed, lost or added."""
        unchanged = not (self.dropped or self.changed or self.added or self.invalid)
        return self.is_complete and unchanged and all(each.equal == each.messages for each in self.bodies)


def link_message(tag: str, number: int, kinds: Sequence[str] = BODY_KINDS, size: int = 64) -> MessageSections:
    """The message with this number; the kinds of body take turns."""
    kind = kinds[number % len(kinds)]
    mark = f"crescendo-link-{tag}-{number:08d}"
    text = mark.ljust(size, "x")
    section, body = {
        DATA: ("data", text.encode()),
        TEXT_VALUE: ("value", text),
        BINARY_VALUE: ("value", text.encode()),
        MAP_VALUE: ("value", {"mark": text, "number": Int(number)}),
        LIST_SEQUENCE: ("sequence", [text, Int(number)]),
    }[kind]
    application = {"text": mark, "whole": Int(number), "long": Long(2**40 + number), "flag": True, "real": number / 8}
    properties = (mark, None, None, "probe", None, mark, None)
    return MessageSections(section, body, application, properties, Header(durable=True, priority=_PRIORITY))


def number_of(octets: bytes, tag: str) -> int | None:
    """Which of our messages this is; None if it is none."""
    found = _MARK.search(octets)
    return int(found[2]) if found and found[1].decode() == tag else None


class FidelityCount:
    """Compares arrivals with what was sent, one by one."""

    def __init__(self, tag: str, kinds: Sequence[str] = BODY_KINDS, size: int = 64) -> None:
        self._tag, self._kinds, self._size = tag, kinds, size
        self._seen: Counter[int] = Counter()
        self._last = -1
        self.duplicated = self.reordered = 0
        self._equal: Counter[str] = Counter()
        self._invalid: Counter[str] = Counter()
        self._arrived_as: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
        self._names: dict[str, set[str]] = {how: set() for how in ("kept", "dropped", "changed", "added")}

    @property
    def arrived(self) -> int:
        return len(self._seen)

    def take(self, octets: bytes) -> bool:
        """Compare one message; False if it is not one of ours."""
        number = number_of(octets, self._tag)
        if number is None:
            return False
        self._seen[number] += 1
        if self._seen[number] > 1:
            self.duplicated += 1
            return True
        self.reordered += number < self._last
        self._last = max(self._last, number)
        self._compare(link_message(self._tag, number, self._kinds, self._size), octets, number)
        return True

    def _compare(self, wanted: MessageSections, octets: bytes, number: int) -> None:
        kind = self._kinds[number % len(self._kinds)]
        try:
            found = _sections_of(octets, wanted)
        except PeerError:
            self._arrived_as[kind][MANGLED] += 1
            self._invalid[WHOLE] += 1
            return
        self._invalid.update(found.invalid)
        arrived_as = _kind_of(found)
        equal = arrived_as == kind and found.body == wanted.body
        self._arrived_as[kind][arrived_as if equal or arrived_as != kind else MANGLED] += 1
        self._equal[kind] += equal
        for name, how in _compared(_named(wanted), _named(found)):
            self._names[how].add(name)

    def result(self, source: str, target: str, address: str, sent: int, resent: int = 0) -> LinkFidelity:
        per_kind = Counter(self._kinds[number % len(self._kinds)] for number in self._seen)
        bodies = [
            BodyFidelity(kind, dict(self._arrived_as[kind]), self._equal[kind], per_kind[kind]) for kind in self._kinds
        ]
        names = {how: sorted(found) for how, found in self._names.items()}
        worse = {*names["dropped"], *names["changed"]}
        return LinkFidelity(
            source=source,
            target=target,
            address=address,
            sent=sent,
            arrived=self.arrived,
            lost=sent - self.arrived,
            duplicated=self.duplicated,
            reordered=self.reordered,
            bodies=bodies,
            kept=[name for name in names["kept"] if name not in worse],
            dropped=names["dropped"],
            changed=names["changed"],
            added=names["added"],
            resent=resent,
            invalid=dict(self._invalid),
        )


def _sections_of(octets: bytes, wanted: MessageSections) -> MessageSections:
    """What arrived. Most links change nothing: then only what stands before the unchanged part is decoded."""
    bare = wanted.bare()
    if not octets.endswith(bare):
        return sections_of(octets)
    before = sections_of(octets[: -len(bare)])
    if before.properties or before.application_properties or before.body_section:
        return sections_of(octets)  # they stand there twice
    return replace(wanted, header=before.header, invalid=before.invalid)


def _kind_of(message: MessageSections) -> str:
    if message.body_section != "value":
        return {"data": DATA, "sequence": LIST_SEQUENCE}.get(message.body_section, "no body")
    known: dict[type, str] = {str: TEXT_VALUE, bytes: BINARY_VALUE, dict: MAP_VALUE}
    return known.get(type(message.body), "other value")


def _named(message: MessageSections) -> dict[str, Any]:
    """Everything but the body, under the names that a reader knows."""
    found = dict(message.application_properties)
    found |= {_FIELDS[at]: value for at, value in enumerate(message.properties) if at in _FIELDS and value is not None}
    priority = message.header.priority
    return found | {"durable": bool(message.header.durable), "priority": None if priority is None else int(priority)}


def _compared(wanted: dict[str, Any], found: dict[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in wanted.items():
        if found.get(name) is None:
            yield name, "dropped"
        else:
            yield name, "kept" if found[name] == value and type(found[name]) is type(value) else "changed"
    for name in found.keys() - wanted.keys():
        yield name, "added"
