"""Is a small file that expands to gigabytes refused, in little memory, and is everything else imported?"""

import bz2
import gzip
import json
import lzma
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from crescendo.importers.decompression import PIECE_BYTES, pieces_of
from crescendo.importers.format import UnpackLimits, unpack_limits
from crescendo.importers.formats.amqperf import AMQPERF
from crescendo.importers.sources import find_files, stage_files
from crescendo.model.errors import ConfigError
from crescendo.record.manifest import read_manifest
from imported_runs import Run, rejected_lines

T_MS = 1_400_000_000_000
LINES = "".join(f"{n} {T_MS + n} {T_MS + n + 2}\n" for n in range(4000)).encode()
STREAM_BYTES, GIGABYTES = 64 * 2**20, 2 * 2**30
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda content: gzip.compress(content, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda content: bytes(pa.Codec("zstd").compress(content, asbytes=True)),
}


@cache
def bomb(kind: str) -> bytes:
    """Valid lines, then gigabytes of empty ones, as a sequence of compressed streams."""
    compress = COMPRESS[kind]
    return compress(LINES[:200]) + compress(b"\n" * STREAM_BYTES) * (GIGABYTES // STREAM_BYTES)


def greedy_xz() -> bytes:
    """An xz file whose header asks for a dictionary of 4 GiB."""
    content = bytearray(lzma.compress(LINES))
    size = (content[12] + 1) * 4
    assert content[14] == 0x21, "LZMA2"
    content[16] = 40
    content[12 + size - 4 : 12 + size] = zlib.crc32(content[12 : 12 + size - 4]).to_bytes(4, "little")
    return bytes(content)


def test_bombs_are_refused_in_little_memory(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    for kind in COMPRESS:
        (directory / f"bomb.{kind}").write_bytes(bomb(kind))
    assert (directory / "bomb.bz2").stat().st_size < 3_000
    (directory / "greedy.xz").write_bytes(greedy_xz())
    (directory / "good.log").write_bytes(LINES)
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("staging.py"), "amqperf", directory, tmp_path / "staged"],
        capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for kind in COMPRESS:
        refused, fault = found["sources"][f"bomb.{kind}"]
        assert refused, kind
        assert "it unpacks to more than 250 times its" in fault
        assert "--limit 2500:1" in fault
    assert found["sources"]["greedy.xz"] == [False, "it takes more than 134,217,728 bytes of memory to unpack"]
    assert found["sources"]["good.log"] == [False, ""]
    assert found["grown_bytes"] < 100 * 2**20
    assert sum(path.stat().st_size for path in (tmp_path / "staged").iterdir()) == len(LINES)


def test_the_rest_of_an_import_goes_on(importing: Run, tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "bomb.log.bz2").write_bytes(bomb("bz2"))
    (directory / "good.log.gz").write_bytes(gzip.compress(LINES))
    summary = importing("amqperf", [directory], tmp_path / "run")
    assert summary.messages == {"sent": 4000, "received": 4000}
    assert [name.split(": ")[0] for name in summary.refused] == [str(directory / "bomb.log.bz2")]
    (row,) = rejected_lines(tmp_path / "run")
    assert row["file"] == str(directory / "bomb.log.bz2")
    assert "250 times" in row["reason"]
    manifest = read_manifest(tmp_path / "run")
    assert any("bomb.log.bz2 was refused" in caveat for caveat in manifest.system["caveats"])
    assert [peer.id for peer in manifest.peers] == ["sender-good.log.gz", "receiver-good.log.gz"]


def test_an_import_of_nothing_but_bombs_is_an_error(importing: Run, tmp_path: Path) -> None:
    (tmp_path / "bomb.bz2").write_bytes(bomb("bz2"))
    with pytest.raises(ConfigError, match=r"bomb\.bz2: it unpacks to more than 250 times"):
        importing("amqperf", [tmp_path / "bomb.bz2"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_limit_for_all_files_together(tmp_path: Path) -> None:
    """The second of three files does not fit any more; the third, which is smaller, does."""
    (tmp_path / "logs").mkdir()
    for number, size in enumerate((100_000, 60_000, 20_000)):
        (tmp_path / "logs" / f"{number}.gz").write_bytes(gzip.compress(LINES[:size]))
    found, _ = find_files([tmp_path / "logs"], AMQPERF)
    sources = stage_files(found, tmp_path / "staged", unpack_limits(["140KB"]))
    assert [source.refused for source in sources] == [False, True, False]
    assert sources[1].fault.startswith("the files unpack to more than 140,000 bytes; import fewer at a time, or")
    assert sorted(path.stat().st_size for path in (tmp_path / "staged").iterdir()) == [20_000, 100_000]


@pytest.mark.parametrize("kind", COMPRESS)
@pytest.mark.parametrize("streams", [1, 3])
def test_any_content_is_read_in_small_pieces(kind: str, streams: int, tmp_path: Path) -> None:
    content = LINES + bytes(range(256)) * 2000 + b"\n" * 3_000_000
    (tmp_path / "file").write_bytes(COMPRESS[kind](content) * streams)
    pieces = list(pieces_of(tmp_path / "file"))
    assert b"".join(pieces) == content * streams
    assert max(map(len, pieces)) <= PIECE_BYTES


@pytest.mark.parametrize("kind", COMPRESS)
def test_an_archive_in_an_archive_is_not_opened(kind: str, tmp_path: Path) -> None:
    (tmp_path / "nested").write_bytes(COMPRESS[kind](COMPRESS[kind](LINES)))
    with pytest.raises(ConfigError, match="is not in the format amqperf"):
        find_files([tmp_path / "nested"], AMQPERF)


def test_limits_are_a_size_or_a_ratio() -> None:
    assert unpack_limits([]) == UnpackLimits()
    assert unpack_limits(["1GiB", "1000:1"]) == UnpackLimits(2**30, 1000.0)
    for text in ("", "lots", "5:2", "0:1", "nan:1", "1e99:1"):
        with pytest.raises(ConfigError, match="write a size such as 20GiB, or a ratio such as 250:1"):
            unpack_limits([text])
