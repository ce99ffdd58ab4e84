"""How does a verb receive a value that may contain a password?

As an option every account of the machine can read it in the list of processes, so each such option has two others: one
that names a file (`-` is standard input), and a variable of the environment, which only the same account can read. The
variable is removed from our environment, so that no child inherits it.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from crescendo.model.errors import ConfigError
from crescendo.model.urls import redact_url_text

if TYPE_CHECKING:
    from crescendo.control.trust import Lab

STANDARD_INPUT = "-"
_MAX_CHARS = 64 * 1024


def secret_url(option: str, given: str | None, file: str | None) -> str | None:
    """The URL of an option such as `--control`, of `--control-file` or of CRESCENDO_CONTROL; None without one."""
    variable = f"CRESCENDO_{option.removeprefix('--').upper().replace('-', '_')}"
    inherited = os.environ.pop(variable, None) or None
    if given is not None and file is not None:
        raise ConfigError(f"{option} and {option}-file: give one of the two")
    if file is not None:
        return read_secret(f"{option}-file", file)
    if given is not None and redact_url_text(given) != given:
        _warn(option, f"write {option}-file FILE, or set {variable}")
    return given or inherited


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
    try:
        if file == STANDARD_INPUT:
            line = sys.stdin.readline(_MAX_CHARS)
        else:
            with Path(file).open(encoding="utf-8") as opened:
                line = opened.readline(_MAX_CHARS)
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8"
        raise ConfigError(f"{option} {file}: cannot be read: {reason}") from None
    if not (text := line.rstrip("\r\n")):
        raise ConfigError(f"{option} {file}: the first line is empty")
    return text


def read_token(file: str | None) -> "Lab | None":
    """The lab of `--token-file`, which nobody else may be able to read."""
    from crescendo.control.trust import Lab

    if file is None:
        return None
    if file != STANDARD_INPUT:
        try:
            mode = Path(file).stat().st_mode
        except OSError as err:
            raise ConfigError(f"--token-file {file}: cannot be read: {err.strerror}") from None
        if mode & 0o077:
            raise ConfigError(f"--token-file {file}: other accounts can read it; run: chmod 600 {file}")
    return Lab(read_secret("--token-file", file))


def read_set_file(text: str) -> tuple[str, str]:
    """The path and the value that `--set-file PATH=FILE` sets."""
    path, equals, file = text.partition("=")
    if not equals or not path or not file:
        raise ConfigError(
            "--set-file: write it as path=FILE, for example --set-file system.settings.password=secret.txt"
        )
    return path, read_secret(f"--set-file {path}", file)
