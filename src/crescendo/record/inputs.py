"""How does a recording keep the files that its experiment read?

Each is copied into `inputs/` while it is hashed, so that copy, size and hash are of the same content even if the file
is being changed. A file above 64 MiB is not kept: its size, its hash and what followed from it are. Interprets nothing.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from crescendo.model.errors import ConfigError
from crescendo.model.regular_file import open_regular
from crescendo.record.durable import make_directory, sync_tree
from crescendo.record.manifest import InputRecord

INPUTS = "inputs"
MAX_KEPT_BYTES = 64 * 2**20
_CHUNK_BYTES = 2**20


def keep_inputs(run_dir: Path, files: Sequence[str], *, durable: bool = True) -> list[InputRecord]:
    """Copy the files into the recording. Raises ConfigError if one cannot be read."""
    if not files:
        return []
    make_directory(run_dir / INPUTS, durable=durable)
    inputs = [_keep(run_dir, number, file) for number, file in enumerate(files)]
    if durable:
        sync_tree(run_dir / INPUTS)
    return inputs


def kept_at(run_dir: Path, inputs: Sequence[InputRecord]) -> dict[str, str]:
    """File as the experiment names it -> its copy."""
    return {item.path: str(run_dir.resolve() / item.kept) for item in inputs if item.kept}


def with_derived(
    inputs: Sequence[InputRecord], derived: Mapping[str, Mapping[str, int]], copies: Mapping[str, str]
) -> list[InputRecord]:
    """The records, with what followed from each file or from its copy."""
    return [
        msgspec.structs.replace(item, derived=dict(derived.get(copies.get(item.path, item.path), {})))
        for item in inputs
    ]


def _keep(run_dir: Path, number: int, file: str) -> InputRecord:
    kept = f"{INPUTS}/{number}.txt"
    digest, octets = hashlib.sha256(), 0
    try:
        with open_regular(Path(file)) as source, (run_dir / kept).open("xb") as copy:
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                octets += len(chunk)
                if octets <= MAX_KEPT_BYTES:
                    copy.write(chunk)
    except OSError as err:
        raise ConfigError(f"{file}: cannot be kept in the recording: {err.strerror}") from err
    if octets > MAX_KEPT_BYTES:
        (run_dir / kept).unlink()
        kept = ""
    return InputRecord(file, octets, digest.hexdigest(), kept)


def write_given(data: Path, peer_id: str, contents: Mapping[str, bytes]) -> dict[str, str]:
    """Name in an assignment -> file, for contents that came in a note. They are not handed back with the recording."""
    places: dict[str, str] = {}
    for number, (name, content) in enumerate(contents.items()):
        path = data / INPUTS / f"{peer_id}-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # a key may be among them
        path.write_bytes(content)
        places[name] = str(path)
    return places
