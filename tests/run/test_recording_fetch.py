"""Is a recording fetched completely, from any byte on, and is a damaged file rejected by name?"""

import contextlib
import gzip
import hashlib
import http.client
import random
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash_states import Watched
from crescendo.control.trust import Lab
from crescendo.model.errors import LostError
from crescendo.record.schema import EVENTS
from crescendo.record.writer import Recorder
from crescendo.run import recording_fetch
from crescendo.run.recording_fetch import PARTIAL, RecordingSource
from crescendo.run.recording_server import RecordingServer, file_token

LAB = Lab("f11e" * 12)
RUN = "0123456789abcdef"
TOKEN = file_token(LAB.scope_of(RUN))


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What a run left at a peer: one sealed part with its journal, a log, and one that is empty."""
    directory = tmp_path / "data" / RUN
    directory.mkdir(parents=True)
    recorder = Recorder(directory, "sender-0", durable=False)
    source = random.Random(1)
    for number in range(3000):
        recorder.append(EVENTS, 1, number, "sender-0", "noise", source.randbytes(60).hex())
    recorder.close()
    (directory / "logs").mkdir()
    (directory / "logs" / "sender-0.log").write_text("one line\n")
    (directory / "logs" / "empty.log").touch()
    (directory / "inputs").mkdir()
    (directory / "inputs" / "secret").write_text("never handed back")
    return directory


@pytest.fixture
def server(left: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingServer]:
    # Closing waits for the loop of the server, which looks twice a second.
    monkeypatch.setattr(socketserver.BaseServer.serve_forever, "__defaults__", (0.01,))
    made = RecordingServer("127.0.0.1", left.parent, LAB)
    yield made
    made.close()


def fetch(port: int, into: Path, token: str = TOKEN, *, durable: bool = False) -> None:
    source = RecordingSource("sender-0", "127.0.0.1", port, "", RUN, token, durable=durable)
    try:
        source.fetch_all(into)
    finally:
        source.close()


def contents(directory: Path) -> dict[str, str]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def raw_status(port: int, path: str) -> int:
    """The answer to exactly this path, which other clients would tidy up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().status
    finally:
        connection.close()


def part_of(directory: Path) -> Path:
    (part,) = directory.rglob("*.parquet")
    return part


class CuttingProxy:
    """Passes bytes on to a server and breaks every connection after a number of bytes that the code cannot know."""

    def __init__(self, port: int, cuts: list[int]) -> None:
        self._port, self._cuts = port, cuts
        self.broken = self.passed = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            left = self._cuts.pop(0) if self._cuts else 2**40
            with client, socket.create_connection(("127.0.0.1", self._port)) as server:
                threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
                while left and (data := server.recv(min(left, 65_536))):
                    client.sendall(data)
                    left -= len(data)
                    self.passed += len(data)
                self.broken += not left
                for one in (client, server):
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _pump(client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def test_what_was_fetched_is_on_disk(
    server: RecordingServer, left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest says sealed next: after any power cut from now on, every file is there."""
    into = tmp_path / "disk" / "run"
    into.mkdir(parents=True)
    disk = Watched(monkeypatch, into.parent, lambda path: False).disk
    fetch(server.port, into, durable=True)
    arrived = contents(into)
    assert str(part_of(left).relative_to(left)) in arrived
    disk.look()
    for state in disk.power_cuts(tmp_path / "states", random.Random(1)):
        assert contents(state / "run") == arrived


def test_everything_but_inputs_and_empty_files_arrives_as_it_was(
    server: RecordingServer, left: Path, tmp_path: Path
) -> None:
    fetch(server.port, tmp_path / "run")
    wanted = {name: digest for name, digest in contents(left).items() if not name.startswith("inputs/")}
    del wanted["logs/empty.log"]  # it is deleted when its process ends
    assert contents(tmp_path / "run") == wanted
    assert len(wanted) == 3


@pytest.mark.parametrize("seed", range(5))
def test_an_interrupted_fetch_continues_where_it_broke(
    server: RecordingServer, left: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_fetch, "_RETRY_S", 0.0)
    source = random.Random(seed)
    octets = part_of(left).stat().st_size
    proxy = CuttingProxy(server.port, [source.randrange(1, octets // 10) for _ in range(8)])
    try:
        fetch(proxy.port, tmp_path / "run")
    finally:
        proxy.close()
    assert proxy.broken == 8
    assert part_of(tmp_path / "run").read_bytes() == part_of(left).read_bytes()


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.soak)])
def test_a_fetch_may_break_at_any_byte_of_headers_listing_and_files(
    server: RecordingServer, left: Path, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_fetch, "_RETRY_S", 0.0)
    shutil.rmtree(left / "inputs")
    (left / "logs" / "empty.log").unlink()
    part = part_of(left)
    part.unlink()  # a small file takes its place, so that every byte can be tried
    journal = next(left.glob("journal/*"))
    journal.unlink()
    part.write_bytes(random.Random(2).randbytes(500))
    whole = CuttingProxy(server.port, [])
    fetch(whole.port, tmp_path / "whole")
    whole.close()
    for cut in range(1, whole.passed, step):
        proxy, into = CuttingProxy(server.port, [cut]), tmp_path / f"cut-{cut}"
        try:
            fetch(proxy.port, into)
        finally:
            proxy.close()
        assert proxy.broken == 1, cut
        assert contents(into) == contents(left), cut


def test_a_later_process_continues_what_an_earlier_one_began(
    server: RecordingServer, left: Path, tmp_path: Path
) -> None:
    part = part_of(left)
    begun = tmp_path / "run" / (str(part.relative_to(left)) + PARTIAL)
    begun.parent.mkdir(parents=True)
    begun.write_bytes(part.read_bytes()[:1000])
    fetch(server.port, tmp_path / "run")
    assert part_of(tmp_path / "run").read_bytes() == part.read_bytes()
    assert not begun.exists()


def test_a_part_that_changed_after_it_was_sealed_is_rejected_and_named(
    server: RecordingServer, left: Path, tmp_path: Path
) -> None:
    part = part_of(left)
    damaged = bytearray(part.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    part.write_bytes(damaged)
    name = str(part.relative_to(left))
    with pytest.raises(LostError, match=rf"sender-0: {name} is damaged"):
        fetch(server.port, tmp_path / "run")
    arrived = contents(tmp_path / "run")
    assert name not in arrived
    assert "logs/sender-0.log" in arrived


def test_strangers_and_paths_get_nothing(server: RecordingServer, left: Path, tmp_path: Path) -> None:
    with pytest.raises(LostError, match="401"):
        fetch(server.port, tmp_path / "run", file_token(LAB.scope_of("f" * 16)))
    for path in ("/../x/y", f"/{RUN}/inputs/secret", f"/{RUN}/../{RUN}/logs/sender-0.log", f"/{RUN}//etc/passwd"):
        assert raw_status(server.port, path) in {401, 404}, path
    assert raw_status(server.port, f"/{RUN}/logs/sender-0.log") == 200


def test_a_peer_that_is_gone_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_fetch, "IDLE_TIMEOUT_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(LostError, match="sender-0 cannot be reached to fetch its recording"):
        fetch(port, tmp_path / "run")


def test_long_logs_are_compressed_and_short_ones_stay(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "long.log").write_bytes(b"a line\n" * 20_000)
    (logs / "short.log").write_bytes(b"a line\n")
    recording_fetch.compress_logs(tmp_path)
    assert sorted(path.name for path in logs.iterdir()) == ["long.log.gz", "short.log"]
    assert gzip.decompress((logs / "long.log.gz").read_bytes()) == b"a line\n" * 20_000


def test_what_is_sealed_is_fetched_early_and_not_again(
    server: RecordingServer, left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a run drains, journals and logs still grow: only parts are fetched, and later only the rest."""
    into, part = tmp_path / "run", part_of(left).relative_to(left)
    source = RecordingSource("sender-0", "127.0.0.1", server.port, "", RUN, TOKEN)
    source.fetch_sealed(into, lambda: True)
    assert not into.exists()
    source.fetch_sealed(into, lambda: False)
    assert list(contents(into)) == [str(part)]
    asked: list[str] = []
    original = RecordingSource._continue
    monkeypatch.setattr(
        RecordingSource,
        "_continue",
        lambda self, file, partial, start: (asked.append(file.name), original(self, file, partial, start))[1],
    )
    source.fetch_all(into)
    source.close()
    assert str(part) not in asked
    assert len(asked) == 2
    assert (into / part).read_bytes() == (left / part).read_bytes()
