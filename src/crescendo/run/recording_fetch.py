"""How does the conductor fetch what a standing peer recorded?

File by file over HTTPS, into `NAME.part` until it is complete and its hash is right. A broken connection is dialled
again, and the file continues at the byte where it broke, also after this process was restarted, and a file that is
here is not fetched again. Files that will not change may be fetched before the run is over. A file with another hash
than the peer listed is deleted and named; the others are fetched all the same. Trusts no name that it is given.
"""

import contextlib
import gzip
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec

from crescendo.model.errors import LostError
from crescendo.record.durable import make_directory, publish
from crescendo.record.manifest import sha256_of
from crescendo.run.recording_server import FILE_NAME, ListedFile

MAX_FILES = 100_000
_MAX_LISTING_BYTES = 32 * 2**20
_TIMEOUT_S, IDLE_TIMEOUT_S, _RETRY_S = 10.0, 30.0, 0.2
_CONNECT_S = 3.0  # a host that is cut off refuses nothing, so this is waited out at each attempt
PARTIAL = ".part"
COMPRESSED_LOG_BYTES = 64 * 1024


class UnreachableError(LostError):
    """Nobody answers there: the peer is gone, or has come back elsewhere."""


class RecordingSource:
    """The recordings of one standing peer. Use as a context manager, or call close()."""

    def __init__(
        self,
        peer: str,
        address: str,
        port: int,
        authority: str,
        run: str,
        token: str,
        *,
        idle_timeout_s: float | None = None,
        durable: bool = True,
    ) -> None:
        """`idle_timeout_s`: how long nothing may arrive before it gives up."""
        self._peer, self._durable = peer, durable
        self._idle_timeout_s = IDLE_TIMEOUT_S if idle_timeout_s is None else idle_timeout_s
        verify: ssl.SSLContext | bool = ssl.create_default_context(cadata=authority) if authority else False
        self._client = httpx.Client(
            base_url=f"{'https' if authority else 'http'}://{address}:{port}/{run}/",
            headers={"Authorization": f"Bearer {token}"},
            verify=verify,
            timeout=httpx.Timeout(_TIMEOUT_S, connect=_CONNECT_S),
            trust_env=False,
        )

    def close(self) -> None:
        self._client.close()

    def fetch_all(self, run_dir: Path) -> None:
        """Fetch every file. LostError that names the files that are missing or damaged."""
        faults = [fault for file in self._listing() if (fault := self._fetch(file, run_dir / file.name))]
        if faults:
            raise LostError(f"{self._peer}: {'; '.join(faults)}")

    def fetch_sealed(self, run_dir: Path, enough: Callable[[], bool]) -> None:
        """Fetch files that will not change any more, until it is enough. Says nothing about those that fail."""
        for file in self._listing():
            if enough():
                return
            if file.sealed:
                self._fetch(file, run_dir / file.name)

    def _listing(self) -> list[ListedFile]:
        deadline_s = time.monotonic() + self._idle_timeout_s
        while True:
            try:
                answer = self._client.get("")
                answer.raise_for_status()
                break
            except httpx.TransportError as err:
                self._wait(err, deadline_s)
            except httpx.HTTPStatusError as err:
                raise LostError(f"{self._peer} refuses its recording: {err.response.status_code}") from err
        try:
            files = msgspec.json.decode(answer.content[:_MAX_LISTING_BYTES], type=list[ListedFile])
        except msgspec.MsgspecError as err:
            raise LostError(f"{self._peer} sent a list of its recording that cannot be read: {err}") from err
        if len(files) > MAX_FILES:
            raise LostError(f"{self._peer} offers {len(files)} files")
        return [file for file in files if FILE_NAME.fullmatch(file.name)]

    def _fetch(self, file: ListedFile, target: Path) -> str:
        """Fetch one file; what is wrong with it, or nothing."""
        if file.sealed and _size(target) == file.octets and sha256_of(target) == file.sha256:
            return ""
        make_directory(target.parent, durable=self._durable)
        partial = target.with_name(target.name + PARTIAL)
        deadline_s = time.monotonic() + self._idle_timeout_s
        while (have := _size(partial)) < file.octets or not partial.exists():
            try:
                self._continue(file, partial, have)
            except httpx.TransportError as err:
                if _size(partial) > have:  # not idle
                    deadline_s = time.monotonic() + self._idle_timeout_s
                self._wait(err, deadline_s)
            except httpx.HTTPStatusError as err:
                return f"{file.name} is gone ({err.response.status_code})"
        if have > file.octets or sha256_of(partial) != file.sha256:
            partial.unlink()
            return f"{file.name} is damaged: its hash is not the one that it was sealed with"
        publish(partial, target, durable=self._durable)
        return ""

    def _continue(self, file: ListedFile, partial: Path, start: int) -> None:
        with (
            self._client.stream("GET", file.name, headers={"Range": f"bytes={start}-"}) as answer,
            partial.open("ab") as out,
        ):
            answer.raise_for_status()
            left = file.octets - start
            for piece in answer.iter_raw():
                out.write(piece[:left])  # a log may have grown meanwhile
                left -= min(left, len(piece))
            if left:
                raise httpx.RemoteProtocolError(f"{file.name} ended early")

    def _wait(self, err: httpx.TransportError, deadline_s: float) -> None:
        if time.monotonic() > deadline_s:
            raise UnreachableError(f"{self._peer} cannot be reached to fetch its recording: {err}") from err
        time.sleep(_RETRY_S)


def compress_logs(run_dir: Path) -> None:
    """Long logs are kept compressed; short ones stay readable as they are."""
    for log in sorted((run_dir / "logs").glob("*.log")):
        if _size(log) >= COMPRESSED_LOG_BYTES:
            packed = log.with_name(log.name + ".gz")
            with log.open("rb") as content, gzip.open(packed, "wb") as out:
                shutil.copyfileobj(content, out)
            log.unlink()


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
