"""Are small documents written whole, and refused when this version does not understand them?"""

import os
import stat
from pathlib import Path

import pytest
from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.record.documents import decode_or_none, read_document, read_or_none, write_atomically, write_document


class Sample(Struct, frozen=True):
    name: str
    format: int = 1


def read(path: Path) -> Sample:
    return read_document(
        path, Sample, noun="a sample", missing="no sample here", version_field="format", version=1, supported="format 1"
    )


def test_a_document_reads_back_and_is_indented_for_people(tmp_path: Path) -> None:
    path = tmp_path / "sample.json"
    write_document(path, Sample("one"))
    assert path.read_text() == '{\n "name": "one",\n "format": 1\n}'
    assert read(path) == read_or_none(path, Sample) == decode_or_none(path.read_bytes(), Sample) == Sample("one")
    assert list(tmp_path.iterdir()) == [path]


def test_a_document_with_secrets_is_private_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    write_document(path, Sample("one"), mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "^no sample here$"),
        (b"", "sample.json: cannot be read as a sample: "),
        (b'{"format": 1}', "sample.json: cannot be read as a sample: .*name"),
        (b'{"name": "x", "format": 0}', "sample.json: format 0, but this version reads format 1$"),
        (b'{"format": 2, "names": 7}', "this version reads format 1: it was made by a newer version of Crescendo$"),
        (b"[" * 100_000, "sample.json: cannot be read as a sample: "),
    ],
)
def test_a_document_that_cannot_be_used_is_one_sentence(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "sample.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read(path)


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"format": 1}'])
def test_where_nothing_can_be_read_there_is_none(tmp_path: Path, content: bytes | None) -> None:
    assert decode_or_none(content, Sample) is None
    if content is not None:
        (tmp_path / "sample.json").write_bytes(content)
    assert read_or_none(tmp_path / "sample.json", Sample) is None


def test_a_device_is_written_to_and_never_replaced() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        write_atomically(Path(f"/dev/fd/{writing}"), b"content")
        os.close(writing)
        assert file.read() == b"content"
