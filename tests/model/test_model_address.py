"""Is an address parsed correctly, and are options that a protocol does not support rejected?"""

import pytest

from crescendo.model.address import AddressOptions, address_of
from crescendo.model.protocols import OWN, known_schemes, protocol_of_scheme


def test_an_address_is_a_queue_unless_it_says_topic() -> None:
    assert address_of("perf").node == "queue://perf"
    assert address_of("queue://perf").node == "queue://perf"
    assert address_of("topic://a/b").node == "topic://a/b"


def test_options_are_typed_values() -> None:
    options = address_of("queue://perf?durable=yes&ttl=1500ms&priority=7&prefetch=10&selector=a%20%3D%20'b'").options
    assert options == AddressOptions(durable=True, ttl=1_500_000_000, priority=7, prefetch=10, selector="a = 'b'")  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", known_schemes())
def test_a_full_address_also_names_the_system(scheme: str) -> None:
    found = address_of(f"{scheme}://ada:s%40crt@host:77/topic/a%20b?verify=no")
    assert (found.destination, found.is_topic) == ("a b", True)
    assert found.url == f"{scheme}://ada:s%40crt@host:77?verify=no"
    spoken = protocol_of_scheme(scheme)
    assert spoken is not None
    assert found.protocol == spoken.name


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("http://x", "queue://NAME"),
        ("queue://", "queue://NAME"),
        ("amqp://host/perf", "/queue/NAME"),
        ("amqp://host:0/queue/perf", "/queue/NAME"),
        ("queue://perf?colour=red", "unknown option 'colour'"),
        ("queue://perf?ttl=5", "ttl: '5' is not a duration"),
        ("queue://perf?priority=high", "priority"),
        ("queue://perf?qos=3", "qos"),
    ],
)
def test_an_invalid_address_is_rejected_with_the_right_form(text: str, cure: str) -> None:
    with pytest.raises(ValueError, match=cure.replace("?", r"\?")):
        address_of(text)


def test_a_password_never_appears_in_an_error() -> None:
    with pytest.raises(ValueError, match="should read") as error:
        address_of("amqp://ada:open-sesame@host:notaport/queue/x")
    assert "open-sesame" not in str(error.value)


@pytest.mark.parametrize("protocol", OWN)
@pytest.mark.parametrize("option", AddressOptions.__struct_fields__)
def test_an_option_is_supported_or_rejected_but_never_ignored(protocol: str, option: str) -> None:
    example = {"durable": "yes", "ttl": "5s", "priority": "4", "selector": "a", "subscription": "me", "prefetch": "9",
               "ack": {"stomp": "client", "amqp091": "multiple"}.get(protocol, "auto"), "qos": "1", "retained": "yes",
               "exchange": "amq.fanout", "temporary": "yes", "version": "3.1.1"}  # fmt: skip
    node = "queue" if option == "temporary" else "topic"
    address = address_of(f"{node}://x?{option}={example[option]}")
    if option in OWN[protocol].address_options:
        address.check(protocol)
    else:
        with pytest.raises(ValueError, match=option):
            address.check(protocol)


def test_the_limits_of_a_protocol_are_enforced() -> None:
    address_of("queue://x?priority=200").check("amqp091")
    with pytest.raises(ValueError, match="0 to 9"):
        address_of("queue://x?priority=200").check("stomp")
    with pytest.raises(ValueError, match="topic"):
        address_of("queue://x?subscription=me").check("amqp10")
    with pytest.raises(ValueError, match="amqp10"):
        address_of("mqtt://h/queue/x").check("amqp10")
