"""What must a peer process know that others must not read?

The address of the control broker with its account, and the key of the run. The starter of the process writes them to
its standard input as one line of JSON: arguments and environments can be read by others. So are the files that the
process may read for its experiment, because no note may name one.
"""

from typing import Any

import msgspec
from msgspec import Struct, field

from crescendo.control.request_payloads import LogLevel
from crescendo.control.trust import NoteScope
from crescendo.model.errors import ConfigError


class UnconductedTest(Struct, frozen=True, forbid_unknown_fields=True):
    """A test that one peer begins by itself, because nobody conducts it."""

    assignment: dict[str, Any]
    ends_after_ns: int | None = None  # None: when its assignment is done, or when it is stopped
    log_level: LogLevel = "info"


class PeerLaunch(Struct, frozen=True, forbid_unknown_fields=True):
    """The first line that a peer process reads."""

    control: str
    scope: str
    key: str  # hexadecimal
    inputs: dict[str, str] = field(default_factory=dict)  # name in the assignment -> file
    by_hand: UnconductedTest | None = None

    def __repr__(self) -> str:
        return f"PeerLaunch({self.scope})"

    @property
    def of_scope(self) -> NoteScope:
        return NoteScope(self.scope, bytes.fromhex(self.key))

    def to_line(self) -> str:
        return msgspec.json.encode(self).decode()


def launch_into(
    scope: NoteScope,
    control_url: str,
    inputs: dict[str, str] | None = None,
    by_hand: UnconductedTest | None = None,
) -> PeerLaunch:
    return PeerLaunch(control_url, scope.name, scope.key.hex(), inputs or {}, by_hand)


def read_launch(line: str) -> PeerLaunch:
    try:
        launch = msgspec.json.decode(line, type=PeerLaunch)
        bytes.fromhex(launch.key)
    except (msgspec.MsgspecError, ValueError):
        raise ConfigError("standard input: the first line is not what `crescendo run` writes to its peers") from None
    return launch
