"""What do the two ends of a link look like when somebody asks for it?

The source and target that an attach names (part 3.5): for a queue or a topic, with a selector, as a subscription that
stays.
"""

from crescendo.wire.amqp10.performatives import Source, Target
from crescendo.wire.amqp10.types import Described, Symbol, ULong

TOPIC = "topic"
_DURABLE = 2  # of a terminus: what it holds and what is unsettled survive
_SELECTOR = Symbol("jms-selector")
_SELECTOR_CODE = ULong(0x0000_468C_0000_0004)


def target_at(address: str, *, topic: bool) -> Target:
    """Where messages go."""
    return Target(address=address, capabilities=_capabilities(topic))


def source_at(address: str, *, topic: bool, selector: str | None, durable: bool) -> Source:
    """Where messages come from."""
    source = Source(address=address, capabilities=_capabilities(topic))
    if selector is not None:
        source.filter = {_SELECTOR: Described(_SELECTOR_CODE, selector)}
    if durable:
        source.durable, source.expiry_policy = _DURABLE, Symbol("never")
    return source


def _capabilities(topic: bool) -> list[str] | None:
    # Brokers that know both kinds of node (Artemis, ActiveMQ) tell them apart by this; the others ignore it.
    return [TOPIC] if topic else None
