"""Which headers does a client send with each command, in each version of STOMP?

One function per command returns the headers that the version requires; the frames codec writes them. A request that
the version cannot express is refused with an error, never dropped. Knows the headers by which ActiveMQ, Artemis and
RabbitMQ name durable subscriptions, and nothing else about brokers.
"""

from collections.abc import Mapping
from enum import StrEnum

from crescendo.model.errors import ConfigError
from crescendo.wire.stomp.escaping import Version

Headers = dict[str, str]


class Ack(StrEnum):
    """How a subscription's messages are acknowledged."""

    AUTO = "auto"
    CLIENT = "client"  # one acknowledgement covers all earlier messages of the subscription
    CLIENT_INDIVIDUAL = "client-individual"


class BrokerDialect(StrEnum):
    """The broker whose headers make a subscription durable."""

    ACTIVEMQ = "activemq"
    ARTEMIS = "artemis"
    RABBITMQ = "rabbitmq"


def durable(broker: BrokerDialect, name: str) -> Headers:
    """Headers for SUBSCRIBE and its UNSUBSCRIBE. ActiveMQ and Artemis also need a client id on CONNECT."""
    match broker:
        case BrokerDialect.ACTIVEMQ:
            return {"activemq.subscriptionName": name}
        case BrokerDialect.ARTEMIS:
            return {"durable-subscription-name": name}
        case BrokerDialect.RABBITMQ:  # its durable subscription is a queue with this name
            return {"durable": "true", "auto-delete": "false", "x-queue-name": name}


def connect(
    *,
    host: str,
    accept_version: str | None,
    heartbeats: str = "0,0",
    login: str | None = None,
    passcode: str | None = None,
    client_id: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Headers:
    headers: Headers = {}
    if accept_version is not None:
        headers |= {"accept-version": accept_version, "heart-beat": heartbeats}
    headers["host"] = host
    if login is not None:
        headers |= {"login": login, "passcode": passcode or ""}
    if client_id is not None:
        headers["client-id"] = client_id
    return _with(headers, more)


def send(
    destination: str,
    *,
    persistent: bool = False,
    ttl_ms: int | None = None,
    priority: int | None = None,
    now_ms: int | None = None,
    transaction: str | None = None,
    receipt: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Headers:
    """The receipt comes last: batches patch it there. `expires` is an absolute time, so `ttl_ms` needs `now_ms`."""
    headers = {"destination": destination}
    if persistent:
        headers["persistent"] = "true"
    if priority is not None:
        headers["priority"] = str(priority)
    if ttl_ms is not None:
        if now_ms is None:
            raise ConfigError("STOMP sends the time at which a message expires, so a ttl needs the current time")
        headers["expires"] = str(now_ms + ttl_ms)
    headers = _with(headers, more)
    return _optional(headers, transaction=transaction, receipt=receipt)


def subscribe(
    version: Version,
    subscription: str,
    destination: str,
    ack: Ack = Ack.AUTO,
    *,
    selector: str | None = None,
    receipt: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Headers:
    if version is Version.V1_0 and ack is Ack.CLIENT_INDIVIDUAL:
        raise ConfigError("STOMP 1.0 has no client-individual acknowledgement; use client or auto")
    headers = _optional({"id": subscription, "destination": destination, "ack": ack.value}, selector=selector)
    return _optional(_with(headers, more), receipt=receipt)


def unsubscribe(
    version: Version,
    subscription: str,
    *,
    destination: str | None = None,
    receipt: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Headers:
    headers = {"id": subscription}
    if version is Version.V1_0:  # also identifies subscriptions by destination
        headers = _optional(headers, destination=destination)
    return _optional(_with(headers, more), receipt=receipt)


def acknowledge(
    version: Version, subscription: str, delivery: str, *, transaction: str | None = None, receipt: str | None = None
) -> Headers:
    """Headers of ACK: `delivery` is the message's ack header in 1.2, its message-id before that."""
    match version:
        case Version.V1_2:
            headers = {"id": delivery}
        case Version.V1_1:
            headers = {"subscription": subscription, "message-id": delivery}
        case Version.V1_0:
            headers = {"message-id": delivery}
    return _optional(headers, transaction=transaction, receipt=receipt)


def reject(
    version: Version, subscription: str, delivery: str, *, transaction: str | None = None, receipt: str | None = None
) -> Headers:
    """Headers of NACK."""
    if version is Version.V1_0:
        raise ConfigError("STOMP 1.0 has no NACK")
    return acknowledge(version, subscription, delivery, transaction=transaction, receipt=receipt)


def transaction(name: str, *, receipt: str | None = None) -> Headers:
    """Headers of BEGIN, COMMIT and ABORT."""
    return _optional({"transaction": name}, receipt=receipt)


def _optional(headers: Headers, **values: str | None) -> Headers:
    return headers | {name: value for name, value in values.items() if value is not None}


def _with(headers: Headers, more: Mapping[str, str] | None) -> Headers:
    for name in more or ():
        if name in headers:
            raise ConfigError(f"the header {name} is already set")
    return headers | dict(more or {})
