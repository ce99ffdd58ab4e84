"""What was measured, in one sentence?

System and version, protocol, senders → destination → receivers, size, rate, settlement and machine, from the manifest
alone: what was asked for, not what came of it. A manifest whose experiment this version cannot read, and an import,
whose experiment is a placeholder, get the part that is known.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.model.experiment import Experiment
from crescendo.model.profile import ConstantProfile
from crescendo.model.protocols import protocol_of
from crescendo.model.urls import redact_url_text
from crescendo.model.workload import EchoMode, Group, PingPongMode, WindowMode
from crescendo.record.manifest import Manifest
from crescendo.report import formats

_SYSTEMS = {
    "activemq": "ActiveMQ", "artemis": "ActiveMQ Artemis", "loopback": "the built-in relay", "mlmq": "MLMQ",
    "mosquitto": "Mosquitto", "qpid-broker-j": "Qpid Broker-J", "qpid-dispatch": "Qpid Dispatch",
    "rabbitmq": "RabbitMQ", "relay": "the relay, a stand-in for a router,", "skupper-router": "the Skupper router",
}  # fmt: skip
"""As their makers write them. Other systems are shown as experiment files write them."""

_IMPORTED = "imported"
_GROUPS_NAMED = 6


class _SystemFacts(Struct, frozen=True):
    """Those facts of a manifest's `system` that the sentence uses; a recording may lack any of them."""

    kind: Any = None
    version: Any = None
    format: Any = None
    topology: Any = None
    stand_ins: Any = 0
    nodes: Any = ()


@dataclass(frozen=True)
class Subject:
    """The sentence, and one line for each group if there are several."""

    sentence: str
    groups: list[str]


def subject(manifest: Manifest, experiment: Experiment | None, *, with_rate: bool = True) -> Subject:
    facts = msgspec.convert(manifest.system, _SystemFacts)
    system = _system(facts, experiment)
    if experiment is None or facts.kind == _IMPORTED:
        return Subject(f"{_upper(system)}{_machine(manifest.host)}.", [])
    lines = [_group(group, with_rate) for group in experiment.workload]
    lines += [
        f"{formats.plural(clients.count, f'{clients.kind} client')} of MLMQ, {formats.octets(clients.size)}"
        for clients in experiment.clients
    ]
    shape = (
        "" if isinstance(experiment.profile, ConstantProfile) else f", rate shaped by a profile ({_kind(experiment)})"
    )
    if len(lines) == 1:
        return Subject(f"{_upper(system)}: {lines[0]}{shape}{_machine(manifest.host)}.", [])
    named = [f"{name}: {line}" for name, line in zip(_names(experiment), lines, strict=True)]
    more = [f"and {len(named) - _GROUPS_NAMED} more"] if len(named) > _GROUPS_NAMED else []
    return Subject(
        f"{_upper(system)}: {len(lines)} groups of senders and receivers{shape}{_machine(manifest.host)}.",
        named[:_GROUPS_NAMED] + more,
    )


def _system(facts: _SystemFacts, experiment: Experiment | None) -> str:
    if facts.kind == _IMPORTED:
        return f"results of another tool ({facts.format or 'unknown format'})"
    if facts.topology:
        network = f"the network {facts.topology} of {formats.plural(len(facts.nodes), 'node')}"
        return f"{network}, with relays as stand-ins for routers" if facts.stand_ins else network
    if facts.kind:
        return f"{_SYSTEMS.get(str(facts.kind), facts.kind)} {facts.version or ''}".strip()
    url = None if experiment is None else experiment.system.url
    return f"a system at {redact_url_text(url)}" if url else "a system of which nothing is recorded"


def _group(group: Group, with_rate: bool) -> str:
    """`2 senders → queue://orders → 2 receivers, AMQP 1.0, 512 B, 600 msg/s, at least once`."""
    senders, receivers = formats.plural(group.senders, "sender"), formats.plural(group.receivers, "receiver")
    spoken = dict.fromkeys(group.spoken_by(role) for role in ("sender", "receiver") if group.connections_of(role))
    parts = [
        f"{senders} → {_destination(group)} → {receivers}",
        " to ".join(protocol_of(name).title or name for name in spoken),
    ]
    if group.senders:
        parts += [_size(group), _rate(group)] if with_rate else [_size(group)]
    return ", ".join([*parts, str(group.settle).replace("-", " "), *_mode(group)])


def _destination(group: Group) -> str:
    node = group.target.node
    return node if group.destinations == 1 else f"{node} ({group.destinations} of them)"


def _size(group: Group) -> str:
    if group.size.file is not None:
        return "lines of a file"
    return formats.octets(group.size) if group.size.is_fixed else f"about {formats.octets(group.size)}"


def _rate(group: Group) -> str:
    return f"{formats.rate(group.senders * group.rate)} msg/s" if group.rate else "as fast as possible"


def _mode(group: Group) -> list[str]:
    if isinstance(group.mode, WindowMode):
        return [f"a window of {group.mode.size:,}"]
    if isinstance(group.mode, PingPongMode):
        return ["one message at a time (ping-pong)"]
    return ["answered (echo)"] if isinstance(group.mode, EchoMode) else []


def _machine(host: dict[str, Any]) -> str:
    """The machine of the generator, and of a system that Crescendo started."""
    facts = [f"{host['cores']} cores" if "cores" in host else "", str(host.get("processor") or host.get("cpu") or "")]
    facts.append(formats.octets(host["memory_bytes"]) if isinstance(host.get("memory_bytes"), int | float) else "")
    known = ", ".join(filter(None, facts))
    name = str(host.get("name") or "one machine")
    return f"; on {name}{f' ({known})' if known else ''}" if host else ""


def _names(experiment: Experiment) -> list[str]:
    return [group.name for group in experiment.workload] + [clients.name for clients in experiment.clients]


def _kind(experiment: Experiment) -> str:
    return str(type(experiment.profile).__struct_config__.tag)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
