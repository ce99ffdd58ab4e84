"""Which URL and which settings does a vendor's JMS client need to do what a group asks for?

Pure: a group, seen as one of its connections, becomes the settings that the JVM gets. Options of a vendor that are not
named here keep the vendor's default: the client is what is measured. What a client cannot do is rejected.
"""

from typing import NamedTuple
from urllib.parse import urlencode

from crescendo.model.errors import ConfigError
from crescendo.model.protocols import default_port, protocol_of_scheme
from crescendo.model.urls import parse_url
from crescendo.model.workload import Group, PingPongMode, Settle

MAX_WAITING = 1 << 16
"""Messages that were handed to the JVM and not sent yet, per connection."""

_ACK_EVERY = 256
_CONFIRMATION_WINDOW_BYTES = 10 * 2**20  # of Artemis; without one, a message counts as confirmed when it is written


class _Vendor(NamedTuple):
    """One client library."""

    protocol: str  # that it speaks
    name: str  # as in Vendor.java
    scheme: str
    prefetch_option: str | None
    common: dict[str, str]
    unsettled: dict[str, str]  # at most once: nothing waits for the system


_VENDORS = (
    _Vendor(
        "amqp10", "QPID", "amqp", "jms.prefetchPolicy.all", {},
        {"jms.presettlePolicy.presettleAll": "true"},
    ),
    _Vendor(
        "openwire", "ACTIVEMQ", "tcp", "jms.prefetchPolicy.all", {"jms.watchTopicAdvisories": "false"},
        {"jms.useAsyncSend": "true"},
    ),
    _Vendor(
        "core", "ARTEMIS", "tcp", None,
        {"confirmationWindowSize": str(_CONFIRMATION_WINDOW_BYTES)},
        {"blockOnDurableSend": "false", "blockOnNonDurableSend": "false"},
    ),
)  # fmt: skip
VENDORS = {vendor.protocol: vendor for vendor in _VENDORS}
"""Protocol -> the client that speaks it."""


def connection_settings(role: str, url: str, group: Group, number: int) -> dict[str, str]:
    """The settings of one connection. The password is among them: they go through a pipe, never on a command line."""
    vendor, parts, options = VENDORS[group.protocol], parse_url(url), group.target.options
    protocol = protocol_of_scheme(parts.scheme)
    if protocol is not None and parts.scheme == protocol.secure_scheme:
        raise ConfigError(
            f"workload.{group.name}: client jms connects without TLS; use a {protocol.scheme}:// URL, or the system "
            "without tls"
        )
    if options.prefetch is not None and vendor.prefetch_option is None:
        raise ConfigError(
            f"workload.{group.name}: the JMS client of {group.protocol} counts bytes, not messages; remove prefetch"
        )
    settles = group.settle is not Settle.AT_MOST_ONCE
    query = dict(vendor.common) | ({} if settles else vendor.unsettled)
    if options.prefetch is not None and vendor.prefetch_option is not None:
        query[vendor.prefetch_option] = str(options.prefetch)
    server = f"{vendor.scheme}://{parts.host or '127.0.0.1'}:{parts.port or default_port(parts.scheme)}"
    settings = {
        "vendor": vendor.name,
        "url": f"{server}?{urlencode(query)}" if query else server,
        "number": str(number),
        "destination": group.destination,
    }
    if group.is_topic:
        settings["topic"] = "yes"
    if parts.user is not None:
        settings |= {"user": parts.user, "password": parts.password or ""}
    if options.durable:
        settings["durable"] = "yes"
    return settings | (_sending(group, number, settles) if role == "sender" else _receiving(group))


def _sending(group: Group, number: int, settles: bool) -> dict[str, str]:
    options = group.target.options
    settings = {"max_waiting": str(MAX_WAITING)}
    settings |= {f"property.{name}": value for name, value in group.properties.items()}
    if settles:
        settings["awaits_outcomes"] = "yes"
    if options.priority is not None:
        settings["priority"] = str(options.priority)
    if options.ttl is not None:
        settings["ttl_ms"] = str(max(options.ttl // 1_000_000, 1))
    if group.window is not None:
        settings["window"] = str(group.window)
    if group.is_answered:
        settings["replies"] = group.reply_group(number).destination
    if isinstance(group.mode, PingPongMode):
        settings |= {"ping_pong": "yes", "window": "1"}
    return settings


def _receiving(group: Group) -> dict[str, str]:
    options = group.target.options
    every = _ACK_EVERY if options.prefetch is None else max(min(_ACK_EVERY, options.prefetch // 2), 1)
    # The client's own acknowledgement comes before a message is processed.
    ack = options.ack or ("client" if group.consuming_ns else "auto")
    settings = {"ack": ack, "ack_every": str(every), "consuming_ns": str(group.consuming_ns)}
    if options.selector is not None:
        settings["selector"] = options.selector
    if options.subscription is not None:
        # The same client id as that of our own drivers, so that both can use one subscription.
        settings |= {"subscription": options.subscription, "client_id": f"crescendo-{options.subscription}"}
    if group.is_answered:
        settings["reply_prefix"] = group.reply_group(0).destination.removesuffix("0")
    return settings
