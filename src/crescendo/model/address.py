"""Where do messages go, and with which guarantees?

An address names a queue or a topic, `queue://perf?durable=yes`, or in full the system as well,
`amqps://user:secret@host/queue/perf?durable=yes&ca=ca.pem`. Options that a protocol does not support are rejected here:
if one were silently ignored, the run would measure something other than what was asked for.
"""

import re
from functools import lru_cache
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
from msgspec import Meta, Struct

from crescendo.model.units import Duration, parse_unit

SCHEMES = {
    "amqp": "amqp10", "amqps": "amqp10", "amqp091": "amqp091", "amqp091s": "amqp091",
    "stomp": "stomp", "stomp+ssl": "stomp", "mqtt": "mqtt", "mqtts": "mqtt", "mlmq": "mlmq",
}  # fmt: skip
"""URL scheme -> protocol."""

PORTS = {
    "amqp": 5672, "amqps": 5671, "amqp091": 5672, "amqp091s": 5671,
    "stomp": 61613, "stomp+ssl": 61612, "mqtt": 1883, "mqtts": 8883, "mlmq": 8099,
}  # fmt: skip

MLMQ_CONTENT_BYTES = 2_000
MLMQ_NAME_CHARACTERS = 50
"""MLMQ's limits. Its protocol imports them from here, because experiments are checked against them first."""

TLS_OPTIONS = ("ca", "cert", "key", "verify", "server_name")
ACKS = {
    "amqp091": ("none", "individual", "multiple"),
    "stomp": ("auto", "client", "client-individual"),
}
"""Acknowledgement modes of receivers, by protocol. The other protocols have one mode, which `settle` selects."""

_NODE = re.compile(r"(?:(queue|topic)://)?((?!\w+://)[^\s:/][^\s]*)")  # a misspelt scheme is not part of a name
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

    @property
    def given(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


SUPPORTED_OPTIONS = {
    "amqp10": ("durable", "ttl", "priority", "selector", "subscription", "prefetch"),
    "amqp091": ("durable", "ttl", "priority", "prefetch", "ack", "exchange"),
    "stomp": ("durable", "ttl", "priority", "selector", "subscription", "prefetch", "ack"),
    "mqtt": ("ttl", "qos", "retained", "subscription", "prefetch"),
    "mlmq": ("priority", "prefetch"),
}
_PRIORITIES = {"amqp10": (0, 255), "amqp091": (0, 255), "stomp": (0, 9), "mlmq": (1, 10)}


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
        return None if self.url is None else SCHEMES[urlsplit(self.url).scheme]

    def check(self, protocol: str) -> None:
        """Reject options that this protocol does not support."""
        if self.protocol not in {None, protocol}:
            raise ValueError(f"address: the URL is for {self.protocol}, but the group's protocol is {protocol}")
        for option in self.options.given:
            if option not in SUPPORTED_OPTIONS[protocol]:
                able = ", ".join(name for name, honoured in SUPPORTED_OPTIONS.items() if option in honoured)
                raise ValueError(f"address: {protocol} does not support {option}; these do: {able}")
        if self.options.priority is not None:
            least, most = _PRIORITIES[protocol]
            if not least <= self.options.priority <= most:
                raise ValueError(f"address: {protocol} has priorities {least} to {most}")
        if self.options.ack not in {None, *ACKS.get(protocol, ())}:
            raise ValueError(f"address: ack {self.options.ack!r} is not one of {', '.join(ACKS[protocol])}")
        if self.options.subscription and not self.is_topic:
            raise ValueError("address: a durable subscription needs a topic; write topic://NAME?subscription=…")


@lru_cache(maxsize=4096)
def address_of(text: str) -> Address:
    """Parse one address. A ValueError says what would be right, without any password."""
    scheme = text.partition("://")[0]
    if scheme in SCHEMES and "://" in text:
        return _parse_url(text)
    node, _, query = text.partition("?")
    match = _NODE.fullmatch(node)
    if not match:
        raise ValueError(f"address {redacted(text)!r} should read queue://NAME or topic://NAME")
    return Address(match[2], match[1] == "topic", _parse_options(dict(parse_qsl(query, keep_blank_values=True))))


def _parse_url(text: str) -> Address:
    shown = redacted(text)
    wanted = "scheme://[user:password@]host[:port]/queue/NAME (or /topic/NAME)"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # its message may contain part of the password
        raise ValueError(f"address {shown!r} should read {wanted}") from None
    kind, _, name = parts.path.removeprefix("/").partition("/")
    if not parts.hostname or port == 0 or kind not in {"queue", "topic"} or not name:
        raise ValueError(f"address {shown!r} should read {wanted}")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    secure = urlencode({key: value for key, value in given.items() if key in TLS_OPTIONS}, quote_via=quote)
    options = _parse_options({key: value for key, value in given.items() if key not in TLS_OPTIONS})
    url = f"{parts.scheme}://{parts.netloc}" + (f"?{secure}" if secure else "")
    return Address(unquote(name), kind == "topic", options, url)


def _parse_options(given: dict[str, str]) -> AddressOptions:
    values: dict[str, Any] = {key: _BOOLEANS.get(value.lower(), value) for key, value in given.items()}
    try:
        return msgspec.convert(values, AddressOptions, dec_hook=parse_unit, strict=False)
    except msgspec.ValidationError as err:
        unknown = re.search(r"unknown field `(.*)`", str(err))
        if unknown:
            raise ValueError(
                f"address: unknown option {unknown[1]!r}; known: {', '.join(AddressOptions.__struct_fields__)}"
            ) from None
        reason, _, where = str(err).partition(" - at `$.")
        raise ValueError(f"address: {where.rstrip('`')}: {reason[:1].lower()}{reason[1:]}") from None


def redacted(text: str) -> str:
    """The text without its password, whether or not it is a valid URL."""
    return re.sub(r"(://[^:@/]*:).*@", r"\1***@", text)
