"""How are small JSON documents stored, so that another version can tell whether it understands them?

A document is written atomically and indented for people; a format that changes has a version number, which is read
first. A reader either gets a document that this version understands or an error of one sentence. Reads only regular
files in the directory where they should be. Knows no document by name.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from crescendo.model.errors import ConfigError
from crescendo.model.regular_file import read_regular
from crescendo.record.contained_files import read_contained
from crescendo.record.durable import publish

Document = TypeVar("Document", bound=Struct)
_DEVICES = frozenset({Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")})
MAX_DOCUMENT_BYTES = 64 * 2**20


def encode_document(document: Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def write_document(path: Path, document: Struct, *, mode: int = 0o666, durable: bool = True) -> None:
    """Write the document atomically. `mode` is subject to the umask."""
    write_atomically(path, encode_document(document), mode=mode, durable=durable)


def read_document(
    path: Path,
    kind: type[Document],
    *,
    noun: str,
    missing: str,
    version_field: str,
    version: int,
    supported: str,
    max_bytes: int = MAX_DOCUMENT_BYTES,
    check_fields: Callable[[Mapping[str, Raw]], None] | None = None,
    check: Callable[[Document], None] | None = None,
) -> Document:
    """The document in a file; ConfigError if it is missing, cannot be read, or has another version.

    check_fields: rejects fields before they are decoded. check: rejects the document. Both raise ValueError.
    """
    try:
        content = read_contained(path.parent, path.name, max_bytes)
        # The version decides how the rest is read: a newer document is not a damaged one.
        fields = msgspec.json.decode(content, type=dict[str, Raw])
        found = msgspec.json.decode(fields[version_field], type=int) if version_field in fields else version
        if found == version:
            if check_fields is not None:
                check_fields(fields)
            document = msgspec.json.decode(content, type=kind)
            if check is not None:
                check(document)
            return document
    except FileNotFoundError:
        raise ConfigError(missing) from None
    except RecursionError:
        raise ConfigError(f"{path}: cannot be read as {noun}: it is nested too deeply") from None
    except (OSError, ValueError) as err:  # msgspec's errors are ValueErrors
        reason = (err.strerror if isinstance(err, OSError) else None) or str(err)
        raise ConfigError(f"{path}: cannot be read as {noun}: {reason}") from err
    made_by = ": it was made by a newer version of Crescendo" if found > version else ""
    raise ConfigError(f"{path}: {version_field} {found}, but this version reads {supported}{made_by}")


def decode_or_none(content: bytes | None, kind: type[Document]) -> Document | None:
    """The document with this content; None if there is no content or this version does not understand it."""
    try:
        return None if content is None else msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return None


def read_or_none(path: Path, kind: type[Document]) -> Document | None:
    """The document in a file; None if the file cannot be read or this version does not understand it."""
    try:
        return decode_or_none(read_regular(path, MAX_DOCUMENT_BYTES), kind)
    except OSError:
        return None


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666, durable: bool = True) -> None:
    """Readers see the old file or the new one, never a partial one; if durable, after a power cut, too."""
    if path.absolute().parent in _DEVICES:
        path.write_bytes(content)  # root could replace /dev/null
        return
    temporary = path.with_name(path.name + ".tmp")
    # A new file, never an old one: what has this name may be a link that leads elsewhere, or a FIFO.
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
        publish(temporary, path, durable=durable)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs the room
        raise
