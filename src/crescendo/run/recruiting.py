"""How does a run get its peers from the standing peers of a lab, and their part of the recording afterwards?

It takes all that it needs or none: two runs that each hold half of what the other wants would wait forever. If peers
are busy it waits and says for whom. While the last messages arrive it fetches what senders have sealed, after the run
the rest, from each peer at its own address, and releases them. Peers of another version are refused. The contents of
files travel; where they lie on either side does not.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crescendo import __version__
from crescendo.control.notes import Command, Identity
from crescendo.control.request_payloads import FREE, PeerOffer, Pong, RoleAssignment
from crescendo.control.trust import NoteScope
from crescendo.model.errors import ConfigError, CrescendoError, LostError, PeerError
from crescendo.run import recording_fetch
from crescendo.run.host_clocks import ClockAddress, clock_addresses
from crescendo.run.lab_client import REQUEST_S, LabClient
from crescendo.run.recording_fetch import RecordingSource, UnreachableError
from crescendo.run.recording_server import file_token

_RETRY_S = 1.0
_ATTEMPT_S, _GONE_S = 3.0, 1.0
_TRIES = 4  # on a busy machine, the answer to a ping may be late


@dataclass(frozen=True, order=True)
class WantedPeer:
    """What a standing peer must be for one place in a run."""

    role: str
    on: str = ""  # a host, a name or a label; empty: anywhere
    protocols: tuple[str, ...] = ()

    def fits(self, peer: Identity, offer: PeerOffer) -> bool:
        return (
            peer.role == self.role
            and self.on in {"", peer.host, peer.id, *offer.labels}
            and set(self.protocols) <= set(offer.protocols)
        )

    def __str__(self) -> str:
        return f"{self.role}(s)" + (f" on {self.on}" if self.on else "")


class Recruits:
    """The standing peers that take part in one run."""

    def __init__(self, client: LabClient, run: NoteScope, *, durable: bool = True) -> None:
        self._client = client
        self._run = run
        self._durable = durable  # what is fetched from them is on disk before it counts as fetched
        self._taken: dict[str, Identity] = {}  # id in the run -> the standing peer
        self._offers: dict[int, PeerOffer] = {}  # session of a standing peer -> what it said about itself
        self._gone: set[int] = set()  # sessions that could not be reached after the run
        self._early: _EarlyCollection | None = None

    def recruit(
        self,
        wanted: Mapping[str, WantedPeer],
        progress: Callable[[str], None],
        interrupted: Callable[[], bool],
    ) -> None:
        """Take a standing peer that fits for every id. Waits until they are free."""
        announced, tries_left = "", _TRIES
        while True:
            seen = self._client.ping(self._client.lab.scope)
            self._offers = {peer.session: pong.offer for peer, pong, _ in seen if pong.offer is not None}
            if interrupted():
                raise KeyboardInterrupt
            usable, refused = of_this_version(seen)
            chosen, waiting, missing = _choose(wanted, usable)
            tries_left = tries_left - 1 if missing else _TRIES
            if not tries_left:
                raise ConfigError("; ".join([missing, *refused]))
            if not waiting:
                waiting = self._take(chosen)
                if not waiting:
                    return
            if waiting != announced:
                announced = waiting
                progress(f"waiting for {waiting}")
            time.sleep(_RETRY_S * (0.5 + random.random()))  # noqa: S311 - so that two runs do not retry in lockstep

    def clocks(self) -> dict[str, ClockAddress]:
        """Where the clock of each of their hosts is asked."""
        offers = [(peer.host, self._offers[peer.session]) for peer in self._taken.values()]
        return clock_addresses(
            [
                ClockAddress(host, offer.clock, offer.address, offer.clock_port, offer.realtime_offset_ns)
                for host, offer in offers
            ]
        )

    def collect_sealed(self, run_dir: Path) -> None:
        """Begin to fetch what senders have sealed, in the background: they are done while the last messages arrive.

        Receivers are left alone until the run is over, and so is the network of their hosts.
        """
        sources = [self._source(peer, 0.0) for peer in self._taken.values() if peer.role == "sender"]
        self._early = _EarlyCollection(sources, run_dir)

    def collect(self, run_dir: Path) -> None:
        """Fetch what they recorded. LostError if one cannot be reached any more.

        A standing peer that was lost and has come back is asked where it is now.
        """
        if self._early is not None:
            self._early.finish()
        faults = []
        for peer_id, peer in list(self._taken.items()):
            try:
                self._collect_from(peer_id, peer, run_dir)
            except LostError as err:
                faults.append(str(err))
        if faults:
            raise LostError("; ".join(faults))

    def _collect_from(self, peer_id: str, peer: Identity, run_dir: Path) -> None:
        deadline_s = time.monotonic() + recording_fetch.IDLE_TIMEOUT_S
        while True:
            with contextlib.closing(self._source(peer, _ATTEMPT_S)) as source:
                try:
                    source.fetch_all(run_dir)
                    return
                except UnreachableError:
                    if time.monotonic() > deadline_s:
                        self._gone.add(peer.session)
                        raise
            if (returned := self._returned(peer)) is not None:
                peer = self._taken[peer_id] = returned

    def _returned(self, lost: Identity) -> Identity | None:
        """The same standing peer, started again."""
        try:
            seen = self._client.ping(self._lab)
        except LostError:
            return None
        for peer, pong, _ in seen:
            if (peer.id, peer.host) == (lost.id, lost.host) and peer.session != lost.session and pong.offer is not None:
                self._offers[peer.session] = pong.offer
                return peer
        return None

    def _source(self, peer: Identity, idle_timeout_s: float) -> RecordingSource:
        offer = self._offers[peer.session]
        return RecordingSource(
            peer.id,
            offer.address,
            offer.files_port,
            offer.authority,
            self._run.name,
            file_token(self._run),
            idle_timeout_s=idle_timeout_s,
            durable=self._durable,
        )

    def release(self) -> None:
        """Let them take part in other runs, and forget this one."""
        if self._early is not None:
            self._early.finish()
        taken, self._taken = self._taken, {}
        for peer_id, peer in taken.items():
            timeout_s = _GONE_S if peer.session in self._gone else REQUEST_S
            given_back = RoleAssignment(self._run.name, peer_id)
            try:
                self._client.ask(self._lab, peer, Command.ROLE_UNASSIGN, given_back, timeout_s)
            except CrescendoError:
                continue  # it is gone, or serves somebody else

    @property
    def _lab(self) -> NoteScope:
        return self._client.lab.scope

    def _take(self, chosen: Mapping[str, Identity]) -> str:
        """Assign all; if one is not free any more, none. Returns whom to wait for."""
        for peer_id, peer in chosen.items():
            try:
                self._client.ask(self._lab, peer, Command.ROLE_ASSIGN, RoleAssignment(self._run.name, peer_id))
            except (PeerError, LostError) as err:
                self.release()
                return str(err)
            self._taken[peer_id] = peer
        return ""


def of_this_version(seen: list[tuple[Identity, Pong, int]]) -> tuple[list[tuple[Identity, Pong, int]], list[str]]:
    """The peers that have our version, and a sentence about each other one."""
    usable, refused = [], []
    for peer, pong, round_trip_ns in seen:
        if pong.offer is not None and pong.offer.version == __version__:
            usable.append((peer, pong, round_trip_ns))
        else:
            version = "no version" if pong.offer is None else f"version {pong.offer.version}"
            refused.append(f"{peer.id} on {peer.host} has {version}, and this is {__version__}; install the same")
    return usable, sorted(refused)


class _EarlyCollection:
    """Fetches in a thread of its own until it is done or must end. What it misses is fetched later."""

    def __init__(self, sources: list[RecordingSource], run_dir: Path) -> None:
        self._sources, self._run_dir = sources, run_dir
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._fetch, name="collection", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the file that is being fetched. Safe to call twice."""
        self._ending.set()
        self._thread.join()

    def _fetch(self) -> None:
        for source in self._sources:
            with contextlib.closing(source), contextlib.suppress(LostError, OSError):
                if not self._ending.is_set():
                    source.fetch_sealed(self._run_dir, self._ending.is_set)


def _choose(
    wanted: Mapping[str, WantedPeer], seen: list[tuple[Identity, Pong, int]]
) -> tuple[dict[str, Identity], str, str]:
    """A free standing peer for every id, or whom to wait for; and what to do if there are too few, busy or not."""
    waiting: list[str] = []
    missing = ""
    known = sorted(((peer, pong) for peer, pong, _ in seen), key=lambda one: one[0].id)
    fitting = {
        want: [(peer, pong) for peer, pong in known if pong.offer is not None and want.fits(peer, pong.offer)]
        for want in wanted.values()
    }
    for want, needed in sorted(Counter(wanted.values()).items()):
        answering = len(fitting[want])
        if answering < needed:
            missing = (
                f"this run needs {needed} standing {want}, and {answering} answer{_without(want, known)}; "
                f"start more with: crescendo peer {want.role} --control-file FILE --token-file FILE --data DIR"
            )
            waiting.append(f"{needed - answering} more {want}")
    chosen = matched(
        {peer_id: [peer for peer, pong in fitting[want] if pong.state == FREE] for peer_id, want in wanted.items()}
    )
    busy = {
        f"{peer.id} (busy with run {pong.run})": None
        for peer_id in wanted.keys() - chosen.keys()
        for peer, pong in fitting[wanted[peer_id]]
        if pong.state != FREE
    }
    if len(chosen) < len(wanted):
        waiting += sorted(busy)
    return chosen, ", ".join(waiting) or ("" if len(chosen) == len(wanted) else "free peers"), missing


def _without(want: WantedPeer, known: list[tuple[Identity, Pong]]) -> str:
    """Those that would fit if they had a protocol, which a plugin brings."""
    lacking = [
        f"{peer.id} has no {', '.join(sorted(set(want.protocols) - set(pong.offer.protocols)))}"
        for peer, pong in known
        if pong.offer is not None
        and not want.fits(peer, pong.offer)
        and replace(want, protocols=()).fits(peer, pong.offer)
    ]
    return f" ({'; '.join(lacking)}: install the plugin there)" if lacking else ""


def matched(fitting: Mapping[str, list[Identity]]) -> dict[str, Identity]:
    """A peer of its own for as many ids as possible: who has a choice makes room for who has none."""
    taken: dict[Identity, str] = {}

    def find(peer_id: str, tried: set[Identity]) -> bool:
        for peer in fitting[peer_id]:
            if peer not in tried:
                tried.add(peer)
                if peer not in taken or find(taken[peer], tried):
                    taken[peer] = peer_id
                    return True
        return False

    for peer_id in fitting:
        find(peer_id, set())
    return {peer_id: peer for peer, peer_id in taken.items()}
