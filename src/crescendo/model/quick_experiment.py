"""Which experiment does a one-line command mean?

A few flags become the document of an experiment: what users of other load generators give on the command line. The
same document is what `crescendo try` runs and what `crescendo init` writes, with a comment for every choice. Pure: it
reads no file and starts nothing.
"""

from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import fields

from crescendo.model.errors import ConfigError
from crescendo.model.protocols import AT_LEAST_ONCE, MessagingProtocol, protocol_of_scheme
from crescendo.model.system_url import no_protocol
from crescendo.model.units import Duration
from crescendo.model.urls import redact_url_text

OWN_QUEUE = "crescendo-{run}"
_WARMUP = Duration.parse("1s")


class LoadFlags(Struct, frozen=True, kw_only=True):
    """The load of a one-line command. A rate is per producer; 0 is as fast as possible."""

    queue: str | None = None
    topic: str | None = None
    producers: int = 1
    consumers: int = 1
    rate: float = 500.0
    size: str = "256"
    length: str = "10s"
    persistent: bool = False
    confirm: int | None = None

    @property
    def arguments(self) -> list[str]:
        """The flags that differ from their defaults, as they are written on the command line."""
        names = {"length": "for"}
        given: list[str] = []
        for item in fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                given.append(f"--{names.get(item.name, item.name)}")
                given += [] if value is True else [f"{value:g}" if isinstance(value, float) else str(value)]
        return given


def quick_document(url: str, flags: LoadFlags) -> dict[str, Any]:
    """The experiment that the flags mean, on the system at this URL."""
    protocol = protocol_of_scheme(
        url.partition("://")[0].lower()
    )  # what else is wrong with it is said where it is used
    if protocol is None:
        raise ConfigError(f"{redact_url_text(url)!r} {no_protocol(url)}")
    if flags.queue is not None and flags.topic is not None:
        raise ConfigError("--queue and --topic: give one of the two")
    if flags.persistent and "durable" not in protocol.address_options:
        raise ConfigError(f"--persistent: {protocol.name} does not mark single messages as persistent; leave it out")
    workload: dict[str, Any] = {
        "address": _address(flags, protocol),
        "protocol": protocol.name,
        "senders": flags.producers,
        "receivers": flags.consumers,
        "size": int(flags.size) if flags.size.isdigit() else flags.size,
        "rate": int(flags.rate) if flags.rate.is_integer() else flags.rate,
        "settle": AT_LEAST_ONCE,
    }
    if flags.confirm is not None:
        workload["mode"] = {"kind": "window", "size": flags.confirm}
    return {
        "name": f"try-{protocol.name}",
        "system": {"url": url},
        "workload": workload,
        "phases": {"warmup": str(_WARMUP), "measure": flags.length, "drain": "10s"},
        "checks": {"rate": ">= 0.99 of offered" if flags.rate else "> 0", "lost": 0},
    }


def _address(flags: LoadFlags, protocol: MessagingProtocol) -> str:
    """What was named, or a queue of the run's own, which the system deletes where the protocol can ask for that."""
    if flags.topic is not None or flags.queue is not None:
        node = f"queue://{flags.queue}" if flags.topic is None else f"topic://{flags.topic}"
        return f"{node}?durable=yes" if flags.persistent else node
    if flags.persistent:
        return f"queue://{OWN_QUEUE}?durable=yes"
    if protocol.shares_subscriptions and flags.consumers == 1:
        return f"topic://{OWN_QUEUE}"  # not every system can share a subscription, and one consumer need not
    return f"queue://{OWN_QUEUE}" + ("?temporary=yes" if protocol.always_temporary else "")


def commented_file(document: dict[str, Any]) -> str:
    """The document as an experiment file for people, with a comment for every choice."""
    system, workload, phases = document["system"], document["workload"], document["phases"]
    bounded = bool(workload["rate"])
    lines = [
        "# An experiment. docs/experiment.md describes every key; `crescendo schema` is for editors.",
        f"name: {_inline(document['name'])}",
        "",
        "# The system: the url of one that is running, or kind: artemis (see `crescendo system list`), which is then",
        "# started and stopped around the run. For a URL with user and password: --set-file system.url=FILE.",
        f"system: {_inline(system)}",
        "",
        "workload:",
        _line("address", workload["address"], "{run} is replaced, so that each run has a queue of its own"),
        _line("protocol", workload["protocol"], "as in the url"),
        _line("senders", workload["senders"], "connections that send"),
        _line("receivers", workload["receivers"], "connections that receive"),
        _line("size", workload["size"], "payload bytes, or 10KB, or 1MiB"),
        _line("rate", workload["rate"], "messages per second and sender; 0: as fast as possible"),
        _line("settle", workload["settle"], "or at-most-once, exactly-once"),
    ]
    if "mode" in workload:
        lines.append(_line("mode", workload["mode"], "at most this many unconfirmed messages per sender"))
    return "\n".join(
        [
            *lines,
            "",
            "# Only the measure phase is judged. Drain: how long the last messages may take to arrive.",
            f"phases: {_inline(phases)}",
            "",
            "# What decides the verdict. Response is measured from the time at which a message was due.",
            "checks:",
            *(f"  {metric}: {_inline(bound)}" for metric, bound in document["checks"].items()),
            '  # response_p99: "<= 100ms"' if bounded else '  # transfer_p99: "<= 100ms"',
            "",
            "# Measured inside the system while it is loaded:",
            '# inspect: [{kind: rabbitmq, url: "http://user:password@host:15672", every: 1s}]',
            "",
        ]
    )


def _line(key: str, value: Any, comment: str) -> str:
    return f"{f'  {key}: {_inline(value)}':34}  # {comment}"


def _inline(value: Any) -> str:
    """A value in one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
