"""What does a message cost the client: batch path, scalar path, and a python-qpid-proton container?

All three send through the same relay and receive from it, unsettled, one sender and one receiver process, in one run.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from bench.engines import FORK, NO_LIMIT, PATIENCE_S, Effort, cpu_seconds, through
from crescendo.load.assignment import Quota
from crescendo.model.units import Size
from crescendo.model.workload import Group
from crescendo.run.processes import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.loopback import LOOPBACK

SIZE = 256
BATCH_MESSAGES = 3_000_000
SCALAR_MESSAGES = 40_000
PROTON_MESSAGES = 20_000


class ProtonSender(MessagingHandler):
    """Sends whenever there is credit; ends when everything is settled."""

    def __init__(self, url: str, messages: int) -> None:
        super().__init__()
        self._url = url
        self._messages = messages
        self._sent = self._settled = 0

    def on_start(self, event: Any) -> None:
        event.container.create_sender(self._url)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._sent < self._messages:
            event.sender.send(Message(body=b"x" * SIZE))
            self._sent += 1

    def on_settled(self, event: Any) -> None:
        self._settled += 1
        if self._settled == self._messages:
            event.connection.close()


class ProtonReceiver(MessagingHandler):
    """Receives a number of messages."""

    def __init__(self, url: str, messages: int, ready: Any) -> None:
        super().__init__(prefetch=1000)
        self._url = url
        self._left = messages
        self._ready = ready
        self.begun = 0.0

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(self._url)

    def on_link_opened(self, event: Any) -> None:
        self._ready.set()

    def on_message(self, event: Any) -> None:
        self.begun = self.begun or time.monotonic()
        self._left -= 1
        if self._left == 0:
            event.connection.close()


def _run_container(handler: Any, messages: int, results: Any) -> None:
    before, begun = cpu_seconds(), time.monotonic()
    Container(handler).run()
    begun = getattr(handler, "begun", 0.0) or begun
    results.put(Effort(messages, time.monotonic() - begun, cpu_seconds() - before, 0.0))


def _proton(url: str) -> tuple[Effort, Effort]:
    ready = FORK.Event()
    sent: Any = FORK.Queue()
    received: Any = FORK.Queue()
    address = f"{url}/proton"
    receiver = FORK.Process(
        target=lambda: _run_container(ProtonReceiver(address, PROTON_MESSAGES, ready), PROTON_MESSAGES, received)
    )
    receiver.start()
    ready.wait(PATIENCE_S)
    sender = FORK.Process(target=lambda: _run_container(ProtonSender(address, PROTON_MESSAGES), PROTON_MESSAGES, sent))
    sender.start()
    efforts = sent.get(timeout=PATIENCE_S), received.get(timeout=PATIENCE_S)
    sender.join()
    receiver.join()
    return efforts


def main() -> None:
    rows: dict[str, tuple[Effort, Effort]] = {}
    for name in ("batch", "scalar", "proton"):
        scratch = Path(tempfile.mkdtemp(prefix="crescendo-bench-"))
        relay = start(LOOPBACK, {}, directory=scratch / "relay", on_fork=die_with_parent())
        try:
            group = Group(size=Size(SIZE), rate=0, address=f"queue://{name}")
            if name == "proton":
                rows[name] = _proton(relay.url)
            else:
                messages = BATCH_MESSAGES if name == "batch" else SCALAR_MESSAGES
                rows[name] = through(relay.url, group, Quota(messages, NO_LIMIT), batching=name == "batch")
        finally:
            relay.stop()
            scratch.rmdir()
    print(f"{SIZE} B unsettled through the loopback relay, one sender and one receiver process")
    print("  path     messages      msg/s   send µs   recv µs   both µs   batch share")
    cost = {}
    for name, (sent, received) in rows.items():
        cost[name] = sent.cpu_us + received.cpu_us
        print(
            f"  {name:7} {sent.messages:>9,} {sent.rate:>10,.0f} {sent.cpu_us:>9.3f} {received.cpu_us:>9.3f} "
            f"{cost[name]:>9.3f} {received.batch_share:>13.1%}"
        )
    print(f"  CPU per message: proton ÷ batch = {cost['proton'] / cost['batch']:.0f}×", end=", ")
    print(f"scalar ÷ batch = {cost['scalar'] / cost['batch']:.0f}×")


if __name__ == "__main__":
    main()
