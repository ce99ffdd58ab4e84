"""Does a vendor's client get what the group asks for, and is the rest refused by name?"""

import pytest

from crescendo.load.jms.connection_settings import VENDORS, connection_settings
from crescendo.model.errors import ConfigError
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import JMS, known_protocols
from crescendo.model.workload import Group, PingPongMode, Settle, Summarize

URL = "openwire://me:s%20ecret@host:61616"


def settings(role: str, url: str = URL, **fields: object) -> dict[str, str]:
    return connection_settings(role, url, Group(**({"protocol": "openwire", "client": "jms"} | fields)), 4)


def test_every_protocol_of_the_jms_client_has_a_vendor() -> None:
    assert {name for name, protocol in known_protocols().items() if JMS in protocol.clients} <= VENDORS.keys()


def test_a_sender_gets_its_options() -> None:
    found = settings("sender", address="topic://t?durable=yes&priority=3&ttl=2s", properties={"colour": "red"})
    wanted = {
        "vendor": "ACTIVEMQ", "url": "tcp://host:61616?jms.watchTopicAdvisories=false", "number": "4", "topic": "yes",
        "destination": "t", "user": "me", "password": "s ecret", "durable": "yes", "max_waiting": "65536",
        "priority": "3", "ttl_ms": "2000", "property.colour": "red", "awaits_outcomes": "yes",
    }  # fmt: skip
    assert found == wanted


def test_a_receiver_gets_its_options() -> None:
    found = settings("receiver", address="topic://t?selector=a=1&subscription=s&prefetch=10&ack=client")
    assert found["url"].endswith("&jms.prefetchPolicy.all=10")
    assert (found["selector"], found["subscription"], found["client_id"]) == ("a=1", "s", "crescendo-s")
    assert (found["ack"], found["ack_every"]) == ("client", "5")


def test_answers_go_to_the_queue_that_the_sender_reads() -> None:
    sender = settings("sender", mode=PingPongMode())
    receiver = settings("receiver", mode=PingPongMode())
    assert sender["replies"] == receiver["reply_prefix"] + "4"
    assert sender["window"] == "1"


def test_at_most_once_waits_for_nothing() -> None:
    found = settings("sender", settle=Settle.AT_MOST_ONCE)
    assert "awaits_outcomes" not in found
    assert "jms.useAsyncSend=true" in found["url"]


def test_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"workload.main: client jms connects without TLS; use a openwire:// URL"):
        settings("sender", "openwire+ssl://host")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"protocol": "stomp"}, "client jms does not speak stomp; it speaks amqp10, openwire"),
        ({"settle": Settle.EXACTLY_ONCE}, "settle: client jms has no exactly-once"),
        ({"failover": []}, "failover: client jms does not reconnect"),
        ({"buffer": 5}, "buffer: client jms sheds no messages"),
        ({"summarize": Summarize("topic://s")}, "summarize: client jms publishes no summaries"),
        ({"size": PayloadSize.parse({"file": "x"})}, "size: client jms sends no lines of a file"),
        ({"address": "queue://q?priority=10"}, "priority: client jms has the priorities 0 to 9"),
    ],
)
def test_what_the_client_does_not_do_is_refused_by_name(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Group(**({"protocol": "amqp10", "client": "jms"} | fields))
