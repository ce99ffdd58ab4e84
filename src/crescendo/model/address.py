"""Where do messages go, and with which guarantees?

An address names a queue or a topic, `queue://perf?durable=yes`, or in full the system as well,
`amqps://user:secret@host/queue/perf?durable=yes&ca=ca.pem`. Options that a protocol does not support are rejected here:
if one were silently ignored, the run would measure something other than what was asked for.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec
from msgspec import Meta, Struct

from crescendo.model.protocols import TLS_OPTIONS, MessagingProtocol, known_protocols, protocol_of, protocol_of_scheme
from crescendo.model.suggestions import choice, suggestion
from crescendo.model.units import Duration, parse_unit
from crescendo.model.urls import parse_url, redact_url_text

_NODE = re.compile(r"(?:(queue|topic)://)?((?!\w+://)[^\s:/][^\s]*)")  # a misspelt scheme is not part of a name
_NODE_KINDS = {"queue", "topic"}
NODE_SCHEMES = ("queue://", "topic://")
"""How an address begins that names no system."""

MQTT_VERSIONS = ("3.1.1", "5")
_BOOLEANS = {"yes": True, "true": True, "no": False, "false": False}


class AddressOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of an address. None: the system's default."""

    durable: bool | None = None  # messages, and queues that Crescendo declares, survive a restart
    ttl: Duration | None = None
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    selector: Annotated[str, Meta(max_length=1000)] | None = None
    subscription: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,60}$")] | None = None  # durable, under this name
    prefetch: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    ack: str | None = None
    qos: Annotated[int, Meta(ge=0, le=2)] | None = None
    retained: bool | None = None
    exchange: Annotated[str, Meta(max_length=255)] | None = None
    temporary: bool | None = None  # the queue is deleted when its last receiver leaves
    version: Literal["3.1.1", "5"] | None = None  # of MQTT; None: 5, and 3.1.1 with a system that refuses it

    @property
    def given(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


class Address(Struct, frozen=True):
    """A queue or topic, its options, and optionally the system it is on."""

    destination: str
    is_topic: bool
    options: AddressOptions
    url: str | None = None  # the system, where the address is given in full

    @property
    def node(self) -> str:
        """The queue or topic alone, as both senders and receivers name it."""
        return f"{'topic' if self.is_topic else 'queue'}://{self.destination}"

    @property
    def protocol(self) -> str | None:
        """The protocol of its URL; None when the address names no system."""
        found = None if self.url is None else protocol_of_scheme(parse_url(self.url).scheme)
        return None if found is None else found.name

    def check(self, protocol: str) -> None:
        """Reject options that this protocol does not support."""
        if self.protocol not in {None, protocol}:
            raise ValueError(f"address: the URL is for {self.protocol}, but the group's protocol is {protocol}")
        self._check_options(protocol_of(protocol))

    def _check_options(self, protocol: MessagingProtocol) -> None:
        for option in self.options.given:
            if option not in protocol.address_options:
                able = ", ".join(name for name, other in known_protocols().items() if option in other.address_options)
                raise ValueError(f"address: {protocol.name} does not support {option}; these do: {able}")
        if self.options.priority is not None and protocol.priorities is not None:
            least, most = protocol.priorities
            if not least <= self.options.priority <= most:
                raise ValueError(f"address: {protocol.name} has priorities {least} to {most}")
        if self.options.ack not in {None, *protocol.acks}:
            raise ValueError(f"address: ack={self.options.ack}: {choice(self.options.ack, protocol.acks)}")
        if self.options.temporary and self.is_topic:
            raise ValueError("address: temporary=yes is for queues; receivers of a topic leave nothing behind")
        if self.options.temporary and self.options.durable:
            raise ValueError("address: a temporary queue does not survive a restart; leave out durable=yes")
        if self.options.subscription and not self.is_topic:
            raise ValueError("address: a durable subscription needs a topic; write topic://NAME?subscription=…")


@lru_cache(maxsize=4096)
def address_of(text: str) -> Address:
    """Parse one address. A ValueError says what would be right, without any password."""
    scheme = text.partition("://")[0]
    if "://" in text and scheme not in _NODE_KINDS and protocol_of_scheme(scheme) is not None:
        return _parse_url(text)
    node, _, query = text.partition("?")
    match = _NODE.fullmatch(node)
    if not match:
        raise ValueError(
            f"address {redact_url_text(text)!r} should read queue://NAME or topic://NAME, with no space in NAME"
        )
    return Address(match[2], match[1] == "topic", _parse_options(dict(parse_qsl(query, keep_blank_values=True))))


def located_address(text: str, url: str, called: Mapping[str, str] | None = None) -> str:
    """The same queue or topic, with the same options, at the system that this URL names.

    `called` has the names under which that system knows some of its queues.
    """
    address = address_of(text)
    if address.url is not None:
        return text
    base, _, secure = url.partition("?")
    options = "&".join(filter(None, (secure, text.partition("?")[2])))
    kind = "topic" if address.is_topic else "queue"
    name = address.destination if address.is_topic else (called or {}).get(address.destination, address.destination)
    return f"{base.rstrip('/')}/{kind}/{quote(name)}" + (f"?{options}" if options else "")


def _parse_url(text: str) -> Address:
    wanted = "scheme://[user:password@]host[:port]/queue/NAME (or /topic/NAME)"
    malformed = ValueError(f"address {redact_url_text(text)!r} should read {wanted}")
    try:
        url = parse_url(text)
    except ValueError:
        raise malformed from None
    kind, _, name = url.path.removeprefix("/").partition("/")
    if not url.host or url.port == 0 or kind not in _NODE_KINDS or not name:
        raise malformed
    secure = urlencode({key: value for key, value in url.options.items() if key in TLS_OPTIONS}, quote_via=quote)
    options = _parse_options({key: value for key, value in url.options.items() if key not in TLS_OPTIONS})
    system = f"{url.scheme}://{url.authority}" + (f"?{secure}" if secure else "")
    return Address(unquote(name), kind == "topic", options, system)


def _parse_options(given: dict[str, str]) -> AddressOptions:
    values: dict[str, Any] = {key: _BOOLEANS.get(value.lower(), value) for key, value in given.items()}
    try:
        return msgspec.convert(values, AddressOptions, dec_hook=parse_unit, strict=False)
    except msgspec.ValidationError as err:
        unknown = re.search(r"unknown field `(.*)`", str(err))
        if unknown:
            hint = suggestion(unknown[1], AddressOptions.__struct_fields__)
            raise ValueError(f"address: unknown option {unknown[1]!r}; {hint}") from None
        if wrong := re.search(r"Invalid enum value '(.*)' - at `\$\.version`", str(err)):
            raise ValueError(f"address: version={wrong[1]}: {choice(wrong[1], MQTT_VERSIONS)}") from None
        reason, _, where = str(err).partition(" - at `$.")
        name = where.rstrip("`")
        if cure := _option_cure(reason):
            raise ValueError(f"address: {name}={given[name]}: {cure}") from None
        raise ValueError(f"address: {name}: {reason[:1].lower()}{reason[1:]}") from None


def _option_cure(reason: str) -> str | None:
    """What would be right, from msgspec's message about an option; None for a message of ours, which says it."""
    if limit := re.match(r"Expected `int` (>=|<=) (\d+)", reason):
        return f"write a number {limit[1]} {limit[2]}"
    if kind := re.match(r"Expected `(bool|int)\b", reason):
        return "write yes or no" if kind[1] == "bool" else "write a whole number"
    if "matching regex" in reason:
        return "use letters, digits and . _ - (at most 60)"
    return None
