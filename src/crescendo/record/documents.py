"""How are small JSON documents stored, so that another version can tell whether it understands them?

A document is written atomically and indented for people; a format that changes has a version number. A reader either
gets a document that this version understands or an error of one sentence. Knows no document by name.
"""

import os
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError

Document = TypeVar("Document", bound=Struct)


def encode_document(document: Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def write_document(path: Path, document: Struct, *, mode: int = 0o666) -> None:
    """Write the document atomically. `mode` is subject to the umask."""
    write_atomically(path, encode_document(document), mode=mode)


def read_document(
    path: Path, kind: type[Document], *, noun: str, missing: str, version_field: str, version: int, supported: str
) -> Document:
    """The document in a file; ConfigError if it is missing, cannot be read, or has another version."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise ConfigError(missing) from None
    except (OSError, msgspec.MsgspecError) as err:
        raise ConfigError(f"{path}: cannot be read as {noun}: {err}") from err
    found = getattr(document, version_field)
    if found != version:
        raise ConfigError(f"{path}: {version_field} {found}, but this version reads {supported}")
    return document


def decode_or_none(content: bytes | None, kind: type[Document]) -> Document | None:
    """The document with this content; None if there is no content or this version does not understand it."""
    try:
        return None if content is None else msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError:
        return None


def read_or_none(path: Path, kind: type[Document]) -> Document | None:
    """The document in a file; None if the file cannot be read or this version does not understand it."""
    try:
        return decode_or_none(path.read_bytes(), kind)
    except OSError:
        return None


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Readers see the old file or the new one, never a partial one."""
    temporary = path.with_name(path.name + ".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
