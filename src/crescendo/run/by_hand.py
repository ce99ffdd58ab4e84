"""Which test do the options of SET describe, and what may be set on which role?

What Maestro's front end gave its peers one option at a time becomes the same assignment that a run gives. An option
that would have no effect is refused. Pure.
"""

from typing import Any

from crescendo.agent.assignment import AgentAssignment
from crescendo.control.notes import Command
from crescendo.control.peer_launch import UnconductedTest
from crescendo.control.request_payloads import SetOptions, StartByHand
from crescendo.inspectors.assignment import InspectorAssignment
from crescendo.inspectors.registry import inspector_of
from crescendo.load.assignment import ConnectionSlot, load_assignment
from crescendo.model.address import address_of
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from
from crescendo.systems.base import MANAGEMENT

OPTIONS = {
    "sender": ("broker", "duration", "log_level", "parallel_count", "message_size", "throttle", "rate"),
    "receiver": ("broker", "duration", "log_level", "parallel_count", "fcl"),
    "inspector": ("duration", "log_level", "management_interface"),
    "agent": ("duration", "log_level"),
}
"""Role -> the options that act on it."""

_NEEDED: dict[str, tuple[str, ...]] = {
    "sender": ("broker", "duration"),
    "receiver": ("broker",),
    "inspector": ("management_interface",),
    "agent": (),
}
_PERIOD_NS = 1_000_000_000
_UNTIL_STOPPED = "1h"  # receivers do not look at the measure phase, but an experiment has one
_PACED = 1.0  # messages per second: to a receiver only the difference to unpaced matters


def check_options(role: str, options: SetOptions) -> None:
    """Reject what has no effect on this role."""
    for name in options.given:
        if name not in OPTIONS[role]:
            able = " and ".join(f"{other}s" for other, names in OPTIONS.items() if name in names)
            raise ConfigError(f"{name} has no effect on the {role} role; it is for {able}")
    if options.throttle is not None and options.rate is not None:
        raise ConfigError("throttle is the rate of the whole peer, rate that of each connection; give one of the two")


def merged(before: SetOptions, later: SetOptions) -> SetOptions:
    """What was set before, changed by what is set now. Rate and throttle replace each other."""
    options = before.given | later.given
    if later.rate is not None:
        options.pop("throttle", None)
    if later.throttle is not None:
        options.pop("rate", None)
    return SetOptions.from_payload(options)


def connection_rate(changed: SetOptions, options: SetOptions) -> float | None:
    """The rate of each connection, if this changes it."""
    if changed.throttle is not None:
        return changed.throttle / (options.parallel_count or 1)
    return changed.rate


def unconducted_test(role: str, options: SetOptions, start: StartByHand) -> UnconductedTest:
    """What a standing peer of this role does after START. ConfigError says what is missing or wrong."""
    for name in _NEEDED[role]:
        if name not in options.given:
            raise ConfigError(f"START_{role.upper()}: SET {name} first")
    if role == "inspector":
        assignment = _inspector_assignment(options.management_interface or "", start.kind)
    elif role == "agent":
        assignment = AgentAssignment().to_payload()  # AGENT_SOURCE follows
    else:
        assignment = _load_assignment(role, options, start.run)
    length_ns = None if options.duration is None or role == "sender" else int(options.duration * 1e9)
    return UnconductedTest(assignment, length_ns, options.log_level or "info")


def start_and_stop(role: str) -> tuple[Command, Command]:
    return Command[f"START_{role.upper()}"], Command[f"STOP_{role.upper()}"]


def _inspector_assignment(url: str, kind: str) -> dict[str, Any]:
    if not kind:
        raise ConfigError("START_INSPECTOR: give kind, the kind of system at the management interface")
    inspector_of(kind)
    return InspectorAssignment(kind, _PERIOD_NS, {MANAGEMENT: url}).to_payload()


def _load_assignment(role: str, options: SetOptions, run: str) -> dict[str, Any]:
    experiment = _experiment(role, options)
    group = experiment.workload[0]
    slots = [ConnectionSlot(number, group.name, number) for number in range(options.parallel_count or 1)]
    url = group.target.url
    return load_assignment(int(run[:8], 16), {group.protocol: url or ""}, experiment, slots, {}, []).to_payload()


def _experiment(role: str, options: SetOptions) -> Experiment:
    connections = options.parallel_count or 1
    try:
        target = address_of(options.broker or "")
    except ValueError as err:
        raise ConfigError(f"broker: {err}") from err
    if target.protocol is None:
        raise ConfigError("broker: give the URL in full, such as amqp://host:5672/queue/perf")
    rate = connection_rate(options, options) or 0.0
    document: dict[str, Any] = {
        "name": "by-hand",
        "workload": {
            "address": options.broker,
            "protocol": target.protocol,
            "senders": connections,
            "receivers": connections,
            "rate": rate if role == "sender" else _PACED,
        },
        "phases": {
            "warmup": "0s",
            "measure": f"{int((options.duration or 0) * 1e9)}ns" if role == "sender" else _UNTIL_STOPPED,
            "drain": "0s",
        },
    }
    if options.message_size is not None:
        document["workload"]["size"] = options.message_size
    if options.fcl is not None:
        document["stop_when"] = {"response_p90": f"{options.fcl}us"}
    return experiment_from(document, source="options")
