"""The options that several verbs share, and what is checked of several of them."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.model.errors import ConfigError
from crescendo.model.units import Duration

Out = Annotated[Path, typer.Option("--out", help="Where recordings are written: OUT/<name>-<time>/.")]
UnpackLimit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", help="How far compressed files may expand: a size for all (20GiB), a ratio for each (250:1)."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON instead of text.")]
Control = Annotated[
    str | None,
    typer.Option("--control", metavar="URL", help="The MQTT broker for control. Default: an embedded one."),
]
ControlFile = Annotated[
    str | None,
    typer.Option(
        "--control-file",
        metavar="FILE",
        help="Read that URL from a file, - is standard input. Or set CRESCENDO_CONTROL.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="The token of the lab: a file of mode 0600 with one line, - is standard input.",
    ),
]
SetFile = Annotated[
    list[str] | None,
    typer.Option("--set-file", metavar="PATH=FILE", help="As --set, with the text of a file, for secrets. Repeatable."),
]
NoFsync = Annotated[
    bool,
    typer.Option("--no-fsync", help="Do not wait for the disk: a throw-away run that a power cut may damage."),
]


def check_directory_of(file: Path | None, option: str) -> None:
    """Reject a file whose directory is missing: before the work, not after it."""
    if file is not None and not file.parent.is_dir():
        raise ConfigError(f"{option} {file}: there is no directory {file.parent}; create it first")


def duration_ns(text: str, option: str, *, min_ns: int = 0) -> int:
    """A length of time that an option gives, such as 60s."""
    try:
        duration = Duration.parse(text)
    except ValueError as err:
        raise ConfigError(f"{option}: {err}") from err
    if duration < min_ns:
        raise ConfigError(f"{option} {text}: too short; give at least {Duration(min_ns)}")
    return int(duration)
