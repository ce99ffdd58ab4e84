"""Which source and target does an attach request?

The two termini of a link (part 3.5): for a queue or a topic, with a selector, or as a durable subscription.
"""

from crescendo.wire.amqp10.performatives import Source, Target
from crescendo.wire.amqp10.types import Described, Symbol, ULong

TOPIC = "topic"
_DURABLE = 2  # terminus durability: its configuration and unsettled state survive
_SELECTOR = Symbol("jms-selector")
_SELECTOR_CODE = ULong(0x0000_468C_0000_0004)


def target_at(address: str, *, topic: bool) -> Target:
    """The terminus that messages are sent to."""
    return Target(address=address, capabilities=_capabilities(topic))


def source_at(address: str, *, topic: bool, selector: str | None, durable: bool) -> Source:
    """The terminus that messages come from."""
    source = Source(address=address, capabilities=_capabilities(topic))
    if selector is not None:
        source.filter = {_SELECTOR: Described(_SELECTOR_CODE, selector)}
    if durable:
        source.durable, source.expiry_policy = _DURABLE, Symbol("never")
    return source


def _capabilities(topic: bool) -> list[str] | None:
    # Brokers with both kinds of node (Artemis, ActiveMQ) distinguish them by this; the others ignore it.
    return [TOPIC] if topic else None
