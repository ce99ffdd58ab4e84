"""What is there to know about a protocol before a connection is opened?

One frozen value per protocol: its URLs, what an address may ask of it, how messages are settled, its limits, and where
its driver is. Everything that lists, checks or looks up protocols reads these values. To add a protocol, write its
codec and its driver, and its value here; another package offers its own value as an entry point of the group
`crescendo.protocols`. Imports no driver.
"""

from msgspec import Struct

from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing

TLS_OPTIONS = ("ca", "cert", "key", "verify", "server_name")
"""The options of a URL that configure TLS."""

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = "at-most-once", "at-least-once", "exactly-once"

JMS = "jms"
"""The name of the JMS clients of the vendors."""

MLMQ_CONTENT_BYTES = 2_000
MLMQ_NAME_CHARACTERS = 50
"""MLMQ's limits. Its codec imports them from here, because experiments are checked against them first."""


class MessagingProtocol(Struct, frozen=True, kw_only=True):
    """The facts about one protocol."""

    name: str  # in experiment files
    title: str = ""  # as people write it; the name, if empty
    scheme: str  # of its URLs
    port: int
    secure_scheme: str | None = None  # over TLS; the name that other clients use
    secure_port: int | None = None
    driver: str  # "module:Prefix": the classes PrefixSender and PrefixReceiver of that module
    null_server: str | None = None  # "module:Class"; None: it cannot be calibrated
    address_options: tuple[str, ...] = ()  # those of AddressOptions that its driver carries out
    acks: tuple[str, ...] = ()  # acknowledgement modes of receivers; empty: there is one, which `settle` selects
    priorities: tuple[int, int] | None = None  # the lowest and the highest
    settle: tuple[str, ...] = (AT_MOST_ONCE, AT_LEAST_ONCE)
    url_options: tuple[str, ...] = TLS_OPTIONS
    has_virtual_hosts: bool = False  # the path of a URL is one
    has_topics: bool = True
    has_properties: bool = True
    sets_heartbeat: bool = False  # its driver asks the system for the interval that a group wants
    always_temporary: bool = False  # every system of this protocol deletes queues with temporary=yes
    shares_subscriptions: bool = False  # there are no queues: receivers of a queue share one subscription to a topic
    subscription_expiry_s: int | None = None  # after which a durable subscription is deleted; None: never
    returns_unsettled: bool = False  # what a receiver has not settled when it closes is back in its queue at once
    max_payload_bytes: int | None = None
    max_name_characters: int | None = None  # of a queue
    clients: tuple[str, ...] = ()  # foreign clients that speak it, besides our own driver

    @property
    def endpoint(self) -> str:
        """The name of a system's endpoint for it. The endpoint over TLS is called like its scheme, too."""
        return self.scheme

    @property
    def schemes(self) -> dict[str, int]:
        """URL scheme -> default port."""
        secure = {} if self.secure_scheme is None else {self.secure_scheme: self.secure_port or self.port}
        return {self.scheme: self.port, **secure}


AMQP10 = MessagingProtocol(
    name="amqp10", title="AMQP 1.0", scheme="amqp", port=5672, secure_scheme="amqps", secure_port=5671,
    driver="crescendo.load.protocols.amqp10:Amqp10",
    null_server="crescendo.calibrate.null_servers:Amqp10NullServer",
    address_options=("durable", "ttl", "priority", "selector", "subscription", "prefetch"),
    priorities=(0, 255),
    settle=(AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE),
    returns_unsettled=True,
    clients=(JMS,),
    sets_heartbeat=True,
)  # fmt: skip
AMQP091 = MessagingProtocol(
    name="amqp091", title="AMQP 0-9-1", scheme="amqp091", port=5672, secure_scheme="amqp091s", secure_port=5671,
    driver="crescendo.load.protocols.amqp091:Amqp091",
    null_server="crescendo.calibrate.null_servers:Amqp091NullServer",
    address_options=("durable", "ttl", "priority", "prefetch", "ack", "exchange", "temporary"),
    acks=("none", "individual", "multiple"),
    priorities=(0, 255),
    has_virtual_hosts=True,
    always_temporary=True,
    returns_unsettled=True,
    sets_heartbeat=True,
)  # fmt: skip
STOMP = MessagingProtocol(
    name="stomp", title="STOMP", scheme="stomp", port=61613, secure_scheme="stomp+ssl", secure_port=61612,
    driver="crescendo.load.protocols.stomp:Stomp",
    null_server="crescendo.calibrate.null_servers:StompNullServer",
    address_options=("durable", "ttl", "priority", "selector", "subscription", "prefetch", "ack", "temporary"),
    acks=("auto", "client", "client-individual"),
    priorities=(0, 9),
    has_virtual_hosts=True,
    returns_unsettled=True,
    sets_heartbeat=True,
)  # fmt: skip
MQTT = MessagingProtocol(
    name="mqtt", title="MQTT", scheme="mqtt", port=1883, secure_scheme="mqtts", secure_port=8883,
    driver="crescendo.load.protocols.mqtt:Mqtt",
    null_server="crescendo.calibrate.null_servers:MqttNullServer",
    address_options=("ttl", "qos", "retained", "subscription", "prefetch", "temporary", "version"),
    url_options=(*TLS_OPTIONS, "version"),
    settle=(AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE),
    always_temporary=True,
    shares_subscriptions=True,
    subscription_expiry_s=86_400,
    sets_heartbeat=True,
)  # fmt: skip
OPENWIRE = MessagingProtocol(
    name="openwire", title="OpenWire", scheme="openwire", port=61616, secure_scheme="openwire+ssl", secure_port=61617,
    driver="crescendo.load.protocols.openwire:OpenWire",
    null_server="crescendo.calibrate.null_servers:OpenWireNullServer",
    address_options=("durable", "ttl", "priority", "selector", "subscription", "prefetch", "ack", "temporary"),
    acks=("auto", "client", "individual"),
    priorities=(0, 9),
    always_temporary=True,
    returns_unsettled=True,
    clients=(JMS,),
)  # fmt: skip
CORE = MessagingProtocol(
    name="core", title="Artemis Core", scheme="core", port=61616, secure_scheme="core+ssl", secure_port=61617,
    driver="crescendo.load.protocols.artemis_core:ArtemisCore",
    null_server="crescendo.calibrate.null_servers:ArtemisCoreNullServer",
    address_options=("durable", "ttl", "priority", "selector", "subscription", "prefetch", "ack", "temporary"),
    acks=("auto", "client", "individual"),
    priorities=(0, 9),
    always_temporary=True,
    returns_unsettled=True,
    clients=(JMS,),
)  # fmt: skip
MLMQ = MessagingProtocol(
    name="mlmq", title="MLMQ", scheme="mlmq", port=8099,
    driver="crescendo.load.protocols.mlmq:Mlmq",
    address_options=("priority", "prefetch"),
    priorities=(1, 10),
    url_options=("brokers",),
    has_topics=False,
    has_properties=False,
    max_payload_bytes=MLMQ_CONTENT_BYTES,
    max_name_characters=MLMQ_NAME_CHARACTERS,
)  # fmt: skip

OWN = {value.name: value for value in list(globals().values()) if isinstance(value, MessagingProtocol)}
"""Name -> protocol, of those that Crescendo comes with, in the order in which they are listed."""

_OWN_SCHEMES = {scheme: protocol for protocol in OWN.values() for scheme in protocol.schemes}


def find_protocol(name: str) -> MessagingProtocol | None:
    """The protocol of this name; None when there is none. Imports at most the plugin of this name."""
    if name in OWN:
        return OWN[name]
    offered: MessagingProtocol | None = plugins.load_plugin(plugins.PROTOCOLS, name, MessagingProtocol)
    return offered


def protocol_of(name: str) -> MessagingProtocol:
    """The protocol of this name, which has been checked before."""
    found = find_protocol(name)
    if found is None:
        raise ConfigError(f"protocol {name!r} is not available; {listing(name, known_protocols())}")
    return found


def known_protocols() -> dict[str, MessagingProtocol]:
    """Name -> protocol: our own, then those of plugins. Our own win a name and a scheme."""
    known = dict(OWN)
    for name, offered in plugins.loaded_plugins(plugins.PROTOCOLS, MessagingProtocol):
        known.setdefault(name, offered)
    return known


def protocol_of_scheme(scheme: str) -> MessagingProtocol | None:
    """The protocol whose URLs begin with this scheme, plain or over TLS."""
    if scheme in _OWN_SCHEMES:
        return _OWN_SCHEMES[scheme]
    return next((protocol for protocol in known_protocols().values() if scheme in protocol.schemes), None)


def default_port(scheme: str) -> int:
    """The port of a URL that names none."""
    protocol = protocol_of_scheme(scheme)
    if protocol is None:
        raise ConfigError(f"no protocol has URLs that begin with {scheme}://; {listing(scheme, known_schemes())}")
    return protocol.schemes[scheme]


def known_schemes() -> list[str]:
    return list(dict.fromkeys(scheme for protocol in known_protocols().values() for scheme in protocol.schemes))


def secure_schemes() -> dict[str, str]:
    """Scheme -> its scheme over TLS, of the protocols that have one."""
    return {
        protocol.scheme: protocol.secure_scheme
        for protocol in known_protocols().values()
        if protocol.secure_scheme is not None
    }
