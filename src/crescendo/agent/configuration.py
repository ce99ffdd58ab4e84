"""What may this agent run, and within which limits?

Its configuration file says so, which the owner of the host writes: sources with the commits that were looked at,
and limits of every handler. A run or a lab asks for a source; nothing that it says widens what the file allows. Fetches
and starts nothing.
"""

import os
import re
import stat
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import msgspec
import yaml
from msgspec import Meta, Struct, field

from crescendo.model.document_errors import explain
from crescendo.model.errors import ConfigError
from crescendo.model.redaction import explain_yaml
from crescendo.model.units import Duration, Size, format_ns, parse_unit
from crescendo.model.urls import redact_url_text

MAX_OUTPUT_BYTES = 256 * 1024
"""The output of a handler travels in one note."""

_COMMIT = r"^([0-9a-f]{40}|[0-9a-f]{64})$"
_MIN_MEMORY_BYTES = 16 * 2**20
_MAX_TIME_NS = 24 * 3600 * 10**9

Commit = Annotated[str, Meta(pattern=_COMMIT)]


class AllowedSource(Struct, frozen=True, forbid_unknown_fields=True, rename={"location": "from"}):
    """A repository, or all below a path or URL that ends with a slash; and the commits that may run."""

    location: Annotated[str, Meta(min_length=1, max_length=2000)]
    commits: Annotated[list[Commit], Meta(min_length=1, max_length=100)]

    def __post_init__(self) -> None:
        check_location(self.location)


class HandlerLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one handler may use; and how many may run at a time."""

    time: Duration = Duration(60 * 10**9)
    output: Size = Size(64 * 1024)  # bytes that it prints
    memory: Size = Size(512 * 2**20)  # address space of each of its processes
    files: Size = Size(64 * 2**20)  # each file that it writes, and each file of a source
    processes: Annotated[int, Meta(ge=1, le=10_000)] = 64
    events: Annotated[int, Meta(ge=0, le=100_000)] = 1000
    handlers: Annotated[int, Meta(ge=1, le=1000)] = 8

    def __post_init__(self) -> None:
        if not 0 < self.time <= _MAX_TIME_NS:
            raise ValueError(f"time must be above 0 and at most {format_ns(_MAX_TIME_NS)}")
        if not 0 < self.output <= MAX_OUTPUT_BYTES:
            raise ValueError(f"output must be above 0 and at most {MAX_OUTPUT_BYTES} bytes")
        if self.memory < _MIN_MEMORY_BYTES:
            raise ValueError(f"memory must be at least {_MIN_MEMORY_BYTES} bytes; no program starts with less")
        if self.files <= 0:
            raise ValueError("files must be above 0")


class AgentConfiguration(Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration file of an agent."""

    sources: Annotated[list[AllowedSource], Meta(min_length=1, max_length=1000)]
    limits: HandlerLimits = HandlerLimits()
    environment: dict[str, str] = field(default_factory=dict)  # of handlers, beside the few variables that all have

    def commits_of(self, source: str) -> list[str]:
        """The commits of this source that may run. ConfigError if it is not on the list."""
        check_location_of_request(source)
        commits = [
            commit for allowed in self.sources if is_within(source, allowed.location) for commit in allowed.commits
        ]
        if not commits:
            raise ConfigError(f"{redact_url_text(source)} is not on the list of sources of this agent")
        return list(dict.fromkeys(commits))


def read_configuration(path: Path) -> AgentConfiguration:
    """The file of one agent; a mistake is a ConfigError with the file and the place."""
    try:
        if path.stat().st_mode & stat.S_IWOTH:
            raise ConfigError(f"{path}: every account may change what this agent runs; chmod o-w {path}")
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: cannot be read: {getattr(err, 'strerror', None) or err}") from err
    except yaml.YAMLError as err:
        raise ConfigError(f"{path}: this is not YAML: {explain_yaml(err)}") from None
    try:
        return msgspec.convert(document, AgentConfiguration, dec_hook=parse_unit)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{path}: {explain(str(err), document, AgentConfiguration)}") from err


def is_within(source: str, allowed: str) -> bool:
    """Whether a source is this one, or below it if that ends with a slash. Paths are compared without their links."""
    if is_path(source) != is_path(allowed):
        return False
    if not is_path(source):
        return source == allowed or (allowed.endswith("/") and source.startswith(allowed))
    below, above = os.path.realpath(source), os.path.realpath(allowed)
    return below == above or (allowed.endswith("/") and below.startswith(above.rstrip("/") + "/"))


def is_path(source: str) -> bool:
    return source.startswith("/")


def check_location(location: str) -> None:
    """Reject what git could take for an option, another transport, or a way out of a prefix."""
    if location.startswith("-") or any(ord(character) < 0x20 or character == "\x7f" for character in location):
        raise ValueError(f"{redact_url_text(location)!r} is not a path or URL of a repository")
    if not is_path(location) and "::" in location.partition("/")[0]:
        raise ValueError(f"{redact_url_text(location)!r}: remote helpers of git are not used")
    if not is_path(location) and not re.match(r"^(https?|ssh|git)://[^/]|^[\w.-]+@[\w.-]+:[^:]", location):
        raise ValueError(
            f"{redact_url_text(location)!r}: write an absolute path, https://HOST/PATH, ssh://HOST/PATH, or "
            "USER@HOST:PATH"
        )
    if not is_path(location) and ":" in location.partition("://")[2].rpartition("@")[0]:
        raise ValueError(f"{redact_url_text(location)!r}: a password in a URL can be read by every account; use a key")
    steps = location if is_path(location) else urlsplit(location).path or location
    if any(unquote(step) in {".", ".."} for step in re.split(r"[/\\]", steps)):
        raise ValueError(f"{redact_url_text(location)!r}: a source has no . or .. in its path")


def check_location_of_request(source: str) -> None:
    try:
        check_location(source)
    except ValueError as err:
        raise ConfigError(str(err)) from None
