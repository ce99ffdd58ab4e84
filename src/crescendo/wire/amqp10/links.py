"""Which links does a session have, and what is the state of each?

A link is known by our handle, by the peer's handle, and by its name together with our role. All three indexes are kept
here, so that removing a link clears every one. Sends nothing.
"""

from dataclasses import dataclass

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.performatives import Attach

MAX_LINKS = 65_536

SENDER, RECEIVER = False, True
SETTLE_UNSETTLED, SETTLE_SETTLED = 0, 1
SETTLE_SECOND = 1  # receiver settle mode: it settles after the sender has


@dataclass(slots=True)
class Link:
    """One link and its counters."""

    handle: int
    name: str
    role: bool
    remote_handle: int | None = None
    delivery_count: int = 0
    credit_limit: int = 0  # the delivery count up to which the sender may send
    partial: bytearray | None = None  # as a receiver: a message of which frames are missing
    partial_id: int = 0
    partial_settled: bool = False
    detached: bool = False  # we sent detach; the peer's answer is pending
    max_message_size: int = 0


class Links:
    """The links of one session."""

    def __init__(self, *, accepts_links: bool) -> None:
        self.by_handle: dict[int, Link] = {}
        self.partials = 0  # links with a message of which frames are missing
        self._accepts_links = accepts_links
        self._by_remote: dict[int, Link] = {}
        self._by_name: dict[tuple[str, bool], Link] = {}

    def new(self, name: str, role: bool) -> Link:
        """Add a link of ours, on a free handle."""
        return self._add(self._free(len(self.by_handle)), name, role)

    def attached(self, attach: Attach) -> Link:
        """The link that the peer attached: an answer to one of ours or, where the peer may attach, a new one."""
        link = self._by_name.get((attach.name, not attach.role))
        if link is None:
            if not self._accepts_links or len(self.by_handle) >= MAX_LINKS or attach.handle in self._by_remote:
                raise PeerError(f"an unrequested link {attach.name!r}")
            link = self._add(self._free(attach.handle), attach.name, not attach.role)
        if attach.handle in self._by_remote or link.remote_handle is not None:
            raise PeerError(f"link {attach.name!r} or its handle {int(attach.handle)} is attached already")
        link.remote_handle = attach.handle
        link.max_message_size = attach.max_message_size or 0
        if link.role is RECEIVER:
            link.delivery_count = attach.initial_delivery_count or 0
        self._by_remote[attach.handle] = link
        return link

    def remote(self, handle: int) -> Link:
        """The link with this handle of the peer."""
        link = self._by_remote.get(handle)
        if link is None:
            raise PeerError(f"link handle {int(handle)} is not attached")
        return link

    def forget(self, link: Link) -> None:
        if link.partial is not None:
            self.partials -= 1  # its last frame will never arrive
        if link.remote_handle is not None:
            del self._by_remote[link.remote_handle]
        del self._by_name[link.name, link.role], self.by_handle[link.handle]

    def forget_all(self) -> None:
        for link in list(self.by_handle.values()):
            self.forget(link)

    def _free(self, handle: int) -> int:
        """This handle, or the next free one: both sides of a connection may attach links of their own."""
        while handle in self.by_handle:
            handle += 1
        return handle

    def _add(self, handle: int, name: str, role: bool) -> Link:
        link = self.by_handle[handle] = self._by_name[name, role] = Link(handle, name, role)
        return link
