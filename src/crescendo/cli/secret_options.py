"""How does a verb receive a value that may contain a password?

As an option every account of the machine can read it in the list of processes, so each such option has two others: one
that names a file (`-` is standard input), and a variable of the environment, which only the same account can read. The
variable is removed from our environment, so that no child inherits it.
"""

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from crescendo.control.token_file import lab_of_file
from crescendo.model.errors import ConfigError
from crescendo.model.secret_file import first_line, read_secret_file
from crescendo.model.urls import redact_url_text

if TYPE_CHECKING:
    from crescendo.control.trust import Lab

STANDARD_INPUT = "-"


def secret_url(option: str, given: str | None, file: str | None, written: str = "") -> str | None:
    """The URL of an option such as `--control`, of `--control-file` or of CRESCENDO_CONTROL; None without one.

    `written` is what the user calls it, where that is an argument instead of an option.
    """
    variable = f"CRESCENDO_{option.removeprefix('--').upper().replace('-', '_')}"
    inherited = os.environ.pop(variable, None) or None
    if given is not None and file is not None:
        raise ConfigError(f"{written or option} and {option}-file: give one of the two")
    if file is not None:
        return read_secret(f"{option}-file", file)
    if given is not None and redact_url_text(given) != given:
        _warn(written or option, f"write {option}-file FILE, or set {variable}")
    return given or inherited


def database_settings(given: str | None, file: str | None) -> dict[str, str | None]:
    """Where a broker's database is, as settings; None where nothing was given.

    A file is named too, because its password may change. It replaces whatever a settings file says, and so does a URL.
    """
    url = secret_url("--database", given, file)
    named = file if file is not None and file != STANDARD_INPUT else ""
    return {"database": url, "database_file": None if url is None else named}


def warn_of_secrets(overrides: Iterable[str]) -> None:
    """Warn of passwords in arguments of `--set`."""
    from crescendo.model.redaction import override_path, redact_override

    for override in overrides:
        if redact_override(override) != override:
            _warn(f"--set {override_path(override)}", "give it with --set-file PATH=FILE")


def _warn(option: str, cure: str) -> None:
    print(f"crescendo: {option}: every account of this machine can read its password; {cure}", file=sys.stderr)


def read_secret(option: str, file: str) -> str:
    """The first line of a file, or of standard input."""
    place = f"{option} {file}"
    if file != STANDARD_INPUT:
        return read_secret_file(place, file)
    try:
        return first_line(place, sys.stdin)
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8"
        raise ConfigError(f"{place}: cannot be read: {reason}") from None


def read_token(file: str | None) -> "Lab | None":
    """The lab of `--token-file`, which nobody else may be able to read."""
    from crescendo.control.trust import Lab

    if file is None:
        return None
    option = "--token-file"
    return Lab(read_secret(option, file)) if file == STANDARD_INPUT else lab_of_file(option, file)


def read_set_file(text: str) -> tuple[str, str]:
    """The path and the value that `--set-file PATH=FILE` sets."""
    path, equals, file = text.partition("=")
    if not equals or not path or not file:
        raise ConfigError(
            "--set-file: write it as path=FILE, for example --set-file system.settings.password=secret.txt"
        )
    return path, read_secret(f"--set-file {path}", file)
