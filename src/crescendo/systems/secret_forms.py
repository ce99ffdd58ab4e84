"""In which forms may the secrets of an instance appear, and how are they kept out of what is shown?

Configuration is rendered a second time with a placeholder, so that no secret is in it, however a kind escapes it. A log
is written by the system itself, so there secrets can only be searched for: as they are, in the forms in which the
configuration files hold them, and in those of URLs, JSON, XML and Python.
"""

import copy
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, quote_plus

import msgspec

from crescendo.model.redaction import is_secret
from crescendo.model.urls import HIDDEN
from crescendo.processes.log_tail import open_log
from crescendo.systems.base import SystemSettings

_PLACEHOLDER = "Placeholder0Of0A0Secret"  # letters and digits only, which no format escapes
_CHUNK_BYTES = 2**20


def hide_secrets(settings: SystemSettings, placeholder: str = HIDDEN) -> SystemSettings:
    """The same settings with a placeholder in place of every secret. Not checked again: a rule may refuse it."""
    hidden = copy.copy(settings)
    for name in _secrets_of(settings):
        msgspec.structs.force_setattr(hidden, name, placeholder)
    return hidden


def placeholder_settings(settings: SystemSettings) -> SystemSettings:
    """Settings whose rendered files show where the secrets are."""
    return hide_secrets(settings, _PLACEHOLDER)


def secret_forms(settings: SystemSettings, files: Mapping[str, str], templates: Mapping[str, str]) -> tuple[str, ...]:
    """Every form to search for, the longest first. `templates` are the same files with `placeholder_settings`."""
    found = {form for path, text in files.items() for form in _forms_in(text, templates.get(path, ""))}
    for name in _secrets_of(settings):
        secret = getattr(settings, name)
        found |= {
            secret,
            secret.strip(),
            quote(secret, safe=""),
            quote(secret),
            quote_plus(secret),
            html.escape(secret),
        }
        found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    return tuple(sorted(filter(None, found), key=lambda form: (-len(form), form)))


def redact_text(text: str, forms: Sequence[str]) -> str:
    """The text without these secrets."""
    for form in forms:
        text = text.replace(form, HIDDEN)
    return text


def contains_secret(path: Path, forms: Sequence[str]) -> bool:
    """Whether one of the forms is in this file."""
    wanted, overlap, before = *_searched(forms), b""
    with open_log(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            block = before + chunk
            if any(form in block for form in wanted):
                return True
            before = block[max(len(block) - overlap, 0) :]
    return False


def redact_file(path: Path, target: Path, forms: Sequence[str]) -> None:
    """Copy a file without these secrets."""
    wanted, overlap, block = *_searched(forms), b""
    with open_log(path) as source, target.open("wb") as copied:
        while chunk := source.read(_CHUNK_BYTES):
            block += chunk
            for form in wanted:
                block = block.replace(form, HIDDEN.encode())
            done = max(len(block) - overlap, 0)  # a form may begin here and end in the next chunk
            copied.write(block[:done])
            block = block[done:]
        copied.write(block)


def _searched(forms: Sequence[str]) -> tuple[list[bytes], int]:
    """The forms as bytes, and how many bytes of one may be in the chunk before."""
    wanted = [form.encode() for form in forms]
    return wanted, max(map(len, wanted), default=1) - 1


def _secrets_of(settings: SystemSettings) -> list[str]:
    names = [field.name for field in msgspec.structs.fields(settings)]
    return [name for name in names if is_secret(name) and isinstance(value := getattr(settings, name), str) and value]


def _forms_in(text: str, template: str) -> Iterator[str]:
    """What the text has in the places of the placeholder. None when they differ elsewhere too, as hashes do."""
    pieces = template.split(_PLACEHOLDER)
    if len(pieces) > 1 and (match := re.fullmatch("(.*?)".join(map(re.escape, pieces)), text, re.DOTALL)):
        yield from match.groups()
