"""What may be shown of the values that people configure?

Secrets are removed from values, before anything is rendered: text that was already rendered may hold them escaped, and
then nobody finds them. A key that names a secret loses its value, a URL its password. `urls.py` treats single URLs.
"""

import re
from typing import Any

import yaml

from crescendo.model.address import NODE_SCHEMES, address_of
from crescendo.model.urls import HIDDEN, redact_authority, redact_url, redact_url_text

_SECRET = re.compile(
    r"password|passwd|passphrase|passcode|pwd|secret|token|credential|api[_-]?key|private[_-]?key", re.IGNORECASE
)
"""The names of settings and properties whose values must not be shown. Not `key`: that is the file of a certificate."""

_PATH = re.compile(r"[\w.\[\]-]*")
_NAMES_IN_YAML = re.compile(r"\b(alias|anchor|tag(?: handle)?) .*", re.DOTALL)


def is_secret(name: str) -> bool:
    """Whether the value of a setting or property of this name must not be shown."""
    return _SECRET.search(name) is not None


def redact_value(value: Any, name: str = "") -> Any:
    """The value of a setting without secrets, at any depth of mappings and lists."""
    if is_secret(name):
        return value if value is None else HIDDEN
    if isinstance(value, dict):
        return {key: redact_value(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(inner) for inner in value]
    return redact_address(value) if isinstance(value, str) else value


def redact_address(text: str) -> str:
    """An address or URL without its password.

    In a valid address, an @ after the host belongs to the name of a queue. In anything else it may end a password.
    """
    if "://" not in text:
        return redact_url(text) if "@" in text and ":" in text else text
    try:
        address = address_of(text)
    except ValueError:
        return redact_url(text)
    if text.count("://") > 1:
        return redact_url_text(text)  # another URL in it, perhaps in the name of a queue
    if address.url is not None:
        return redact_authority(text)
    return text if text.startswith(NODE_SCHEMES) else redact_url(text)


def redact_place(text: str) -> str:
    """What `send_to` or `receive_from` names, without a password."""
    return redact_url(text) if "://" in text or "@" in text else text


def redact_override(override: str) -> str:
    """An argument of `--set` without secrets."""
    path, equals, text = override.partition("=")
    if not equals or path != override_path(override):
        return override_path(override)
    if is_secret(path):
        return f"{path}={HIDDEN}"
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return f"{path}={HIDDEN}"
    shown = redact_value(value)
    if shown == value:
        return override
    if isinstance(shown, str):
        return f"{path}={shown}"
    return f"{path}=" + yaml.safe_dump(shown, default_flow_style=True, sort_keys=False, width=10**6).strip()


def override_path(override: str) -> str:
    """What an argument of `--set` sets: all before the = if it is written as it should. Nothing of the value."""
    found = _PATH.match(override)
    return found[0] if found else ""


def explain_yaml(err: yaml.YAMLError) -> str:
    """What is wrong with this YAML, and where. Quotes none of it, because any line may contain a password."""
    if not isinstance(err, yaml.MarkedYAMLError) or err.problem is None:
        return " ".join(str(err).split()) if isinstance(err, yaml.reader.ReaderError) else "it cannot be read"
    problem = _NAMES_IN_YAML.sub(r"\1", err.problem)
    mark = err.problem_mark
    return problem if mark is None else f"{problem} (line {mark.line + 1}, column {mark.column + 1})"
