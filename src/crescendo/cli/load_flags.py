"""The options of verbs that take the load on the command line, instead of an experiment file."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from crescendo.model.errors import ConfigError
from crescendo.model.protocols import OWN

if TYPE_CHECKING:
    from crescendo.model.experiment import Experiment

_FLAG_OF_KEY = {
    "phases.measure": "--for",
    "workload.size": "--size",
    "workload.senders": "--producers",
    "workload.receivers": "--consumers",
    "workload.mode.size": "--confirm",
}

Url = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help=f"The system, e.g. amqp://host:5672. Schemes: {', '.join(protocol.scheme for protocol in OWN.values())}.",
    ),
]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="A queue. Default: a new one for each run.")]
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="A topic instead of a queue.")]
Producers = Annotated[int, typer.Option("--producers", "-x", min=1, help="Connections that send.")]
Consumers = Annotated[int, typer.Option("--consumers", "-y", min=1, help="Connections that receive.")]
Rate = Annotated[
    float, typer.Option("--rate", "-r", min=0, help="Messages per second and producer; 0: as fast as possible.")
]
Size = Annotated[str, typer.Option("--size", "-s", help="Payload bytes, or e.g. 10KB.")]
Length = Annotated[str, typer.Option("--for", "-z", metavar="TIME", help="How long to measure, e.g. 30s or 5m.")]
Persistent = Annotated[bool, typer.Option("--persistent", "-p", help="Messages that survive a restart of the system.")]
Confirm = Annotated[
    int | None, typer.Option("--confirm", "-c", min=1, help="At most this many unconfirmed messages per producer.")
]
UrlFile = Annotated[
    str | None,
    typer.Option("--url-file", metavar="FILE", help="Read the URL from a file, - is standard input. Or CRESCENDO_URL."),
]


def required_url(url: str | None) -> str:
    if url is None:
        raise ConfigError("which system? Give its URL, --url-file FILE, or set CRESCENDO_URL")
    return url


def experiment_of_flags(document: dict[str, Any], verb: str) -> "Experiment":
    """The experiment that the flags mean. What is wrong with it is said of the flags: its keys were not written."""
    from crescendo.model.experiment_file import experiment_from

    try:
        return experiment_from(document, source=verb)
    except ConfigError as err:
        key, colon, why = str(err).removeprefix(f"{verb}: ").partition(": ")
        if key not in _FLAG_OF_KEY:
            raise
        raise ConfigError(f"{_FLAG_OF_KEY[key]}{colon}{why}") from None
