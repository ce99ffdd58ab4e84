"""Does the load engine speak MLMQ as MLMQ's own client does, and does it report the outcome of every message?"""

import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import httpx
import numpy as np
import pytest

from crescendo.client.mlmq import TYPES, brokers_of
from crescendo.load.protocols import mlmq as driver
from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.load.protocols.mlmq import MlmqReceiver, MlmqSender
from crescendo.mlmq.client import Client, Query
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from
from crescendo.model.workload import Group, Settle
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.schema import Settlement
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of
from crescendo.wire.mlmq.batch import SendBatch
from crescendo.wire.mlmq.codec import Codec, Frame
from crescendo.wire.mlmq.operations import Send

TIMEOUT_S = 60.0
SIZE = 64
RATE = 10.0  # so slow that every request asks for its times


@pytest.fixture
def group() -> Group:
    return Group(address=f"queue://driver-{uuid.uuid4().hex[:12]}", protocol="mlmq", rate=RATE)


@pytest.fixture
def foreign(mlmq: RunningInstance) -> Iterator[Client]:
    """MLMQ's own client, which shares data types with the driver but no transport code."""
    with Client(f"foreign-{uuid.uuid4().hex[:8]}", list(brokers_of(mlmq.url)), timeout_s=TIMEOUT_S) as client:
        client.register()
        yield client


@pytest.fixture(scope="module")
def overloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """A broker that queues one request and serves one at a time."""
    settings = {"request_queue": 1, "workers": 1, "batch": 1}
    directory = tmp_path_factory.mktemp("narrow") / "instance"
    instance = start(system_of("mlmq"), settings, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


def until(done: Callable[[], Any], *channels: Any) -> None:
    """Drive the channels until `done` holds."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline_s
        for channel in channels:
            channel.flush()
            channel.keep_alive(time.monotonic_ns())
            assert channel.closed is None, channel.closed
        time.sleep(0.002)


def ready(channel: Any) -> Any:
    def is_ready() -> bool:
        for _ in channel.pump():
            raise AssertionError("a message arrived before it was requested")
        return bool(channel.ready)

    until(is_ready, channel)
    return channel


def send(sender: MlmqSender, count: int, size: int = SIZE) -> list[SettledMessages]:
    """Send messages 0 to count - 1, each filled with its number; returns their outcomes."""
    sender.resize(size)
    sent = 0
    outcomes: list[SettledMessages] = []

    def settled() -> bool:
        nonlocal sent
        room = min(sender.room(), count - sent)
        if room > 0:
            sender.bodies[:room] = np.arange(sent, sent + room, dtype=np.uint8)[:, None]
            sender.send(sent, room)
            sent += room
        outcomes.extend(sender.pump())
        return sum(len(outcome.seqs) for outcome in outcomes) >= count

    until(settled, sender)
    return outcomes


def take(receiver: MlmqReceiver, count: int, *, settle: bool = True) -> list[tuple[bytes, bool]]:
    """The next messages, and whether each was redelivered."""
    taken: list[tuple[bytes, bool]] = []

    def enough() -> bool:
        for arrived in receiver.pump():
            taken.extend((row.tobytes(), arrived.redelivered) for row in arrived.payloads)
        if settle:
            receiver.settle()
        return len(taken) >= count

    until(enough, receiver)
    return taken


def fetch(client: Client, name: str, count: int) -> Counter[bytes]:
    """Take this many messages from a queue, and check that there are no more."""
    query = Query(queue=client.create_queue(name).queue)
    found: Counter[bytes] = Counter()
    while found.total() < count:
        messages = client.dequeue_messages(query, 100, wait_s=TIMEOUT_S / 2)
        assert messages, f"{found.total()} of {count} messages"
        found.update(message.content for message in messages)
    assert client.dequeue_messages(query, 100) == ()
    return found


def seqs(outcomes: list[SettledMessages], settlement: Settlement) -> list[int]:
    return sorted(seq for outcome in outcomes if outcome.settlement == settlement for seq in map(int, outcome.seqs))


@pytest.mark.parametrize("size", [32, 255, 256, 2000])
def test_a_batch_decodes_like_the_scalar_codec(size: int) -> None:
    batch = SendBatch(body_length=size, priority=7, capacity=5)
    batch.address(3, 2**40)
    batch.bodies[:] = np.arange(5, dtype=np.uint8)[:, None]
    codec = Codec(TYPES)
    codec.receive(batch.frames(98, 4, 50))
    for position in range(4):
        expected = Send(3, bytes([position]) * size, (2**40,), 7)
        assert codec.next_frame() == Frame(98 + position, expected, wants_times=position == 2)
    assert codec.next_frame() is None


@pytest.mark.parametrize("batching", [True, False])
def test_a_foreign_client_gets_every_accepted_message(
    mlmq: RunningInstance, foreign: Client, group: Group, batching: bool
) -> None:
    with closing(ready(MlmqSender(mlmq.url, group, batching=batching))) as sender:
        outcomes = send(sender, 200)
        assert sender.batched == (200 if batching else 0)
    assert seqs(outcomes, Settlement.ACCEPTED) == list(range(200))
    assert fetch(foreign, group.destination, 200) == Counter(bytes([number]) * SIZE for number in range(200))


def test_messages_of_a_foreign_client_arrive_whatever_their_size(
    mlmq: RunningInstance, foreign: Client, group: Group
) -> None:
    queue = foreign.create_queue(group.destination).queue
    sent = [bytes([number]) * (number % 3 * 40) for number in range(30)]
    for content in sent:
        foreign.send_message(queue, content)
    with closing(ready(MlmqReceiver(mlmq.url, group))) as receiver:
        receiver.begin()
        taken = take(receiver, 30)
    assert Counter(content for content, _ in taken) == Counter(sent)
    assert not any(again for _, again in taken)


def test_at_least_once_keeps_a_message_until_it_is_settled(
    mlmq: RunningInstance, foreign: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LEASE_MS", 500)
    group = Group(address=f"queue://kept-{uuid.uuid4().hex[:12]}?prefetch=1", protocol="mlmq")  # one dequeue at a time
    queue = foreign.create_queue(group.destination).queue
    foreign.send_message(queue, b"forgotten" * 4)
    with closing(ready(MlmqReceiver(mlmq.url, group))) as receiver:
        receiver.begin()
        assert take(receiver, 1, settle=False) == [(b"forgotten" * 4, False)]
        again = foreign.dequeue_message(Query(queue=queue), wait_s=TIMEOUT_S / 2)
        assert again is not None
        assert again.redelivered
        foreign.send_message(queue, b"settled" * 8)
        assert take(receiver, 1) == [(b"settled" * 8, False)]
        until(lambda: not list(receiver.pump()) and not receiver._settling, receiver)
    assert foreign.dequeue_message(Query(queue=queue), wait_s=1.5) is None  # three leases later


def test_at_most_once_takes_a_message_for_good(
    mlmq: RunningInstance, foreign: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LEASE_MS", 200)
    group = Group(address=f"queue://once-{uuid.uuid4().hex[:12]}", protocol="mlmq", settle=Settle.AT_MOST_ONCE)
    queue = foreign.create_queue(group.destination).queue
    foreign.send_message(queue, b"taken" * 8)
    with closing(ready(MlmqReceiver(mlmq.url, group))) as receiver:
        receiver.begin()
        assert take(receiver, 1, settle=False) == [(b"taken" * 8, False)]
        assert foreign.dequeue_message(Query(queue=queue), wait_s=1.0) is None


def test_a_message_that_an_overloaded_broker_refused_is_rejected_and_never_stored(
    overloaded: RunningInstance, group: Group
) -> None:
    with closing(ready(MlmqSender(overloaded.url, group))) as sender:
        outcomes = send(sender, 200)
    accepted, rejected = seqs(outcomes, Settlement.ACCEPTED), seqs(outcomes, Settlement.REJECTED)
    assert rejected, "two hundred requests at once, and one may wait"
    assert sorted(accepted + rejected) == list(range(200))
    with Client("checker", list(brokers_of(overloaded.url)), timeout_s=TIMEOUT_S) as checker:
        checker.register()
        assert fetch(checker, group.destination, len(accepted)) == Counter(bytes([seq]) * SIZE for seq in accepted)


def test_receivers_of_an_overloaded_broker_ask_again_and_get_everything(
    overloaded: RunningInstance, group: Group
) -> None:
    with ExitStack() as stack:
        receivers = [stack.enter_context(closing(ready(MlmqReceiver(overloaded.url, group)))) for _ in range(3)]
        for receiver in receivers:
            receiver.begin()  # twelve dequeues at once
        sender = stack.enter_context(closing(ready(MlmqSender(overloaded.url, group))))
        accepted = seqs(send(sender, 20), Settlement.ACCEPTED)
        taken: Counter[bytes] = Counter()

        def all_taken() -> bool:
            for receiver in receivers:
                for arrived in receiver.pump():
                    taken.update(row.tobytes() for row in arrived.payloads)
                receiver.settle()
            return taken.total() >= len(accepted)

        until(all_taken, *receivers)
    assert taken == Counter(bytes([seq]) * SIZE for seq in accepted)


def metric(instance: RunningInstance, pattern: str) -> list[float]:
    """One metric of each broker, read from its own page without the inspector."""
    found = []
    for name, url in instance.endpoints.items():
        if name.startswith("management"):
            page = httpx.get(f"{url}/metrics", trust_env=False).text
            match = re.search(rf"^crescendo_mlmq_{pattern} (\S+)$", page, re.MULTILINE)
            found.append(float(match[1]) if match else 0.0)
    return found


def test_tiers_match_the_brokers_metrics_and_add_up_to_the_whole(overloaded: RunningInstance, group: Group) -> None:
    with closing(ready(MlmqSender(overloaded.url, group))) as sender:
        before = {
            tier: sum(metric(overloaded, rf'tier_seconds_total{{tier="{tier}"}}')) for tier in ("database", "queue")
        }
        begun_ns = time.monotonic_ns()
        for _ in range(20):
            send(sender, 1)
        passed_ns = time.monotonic_ns() - begun_ns
        after = {tier: sum(metric(overloaded, rf'tier_seconds_total{{tier="{tier}"}}')) for tier in before}
        spans = {one.action: one for one in sender.take_spans()}
        assert sender.take_spans() == []
    whole = spans.pop("Send")
    assert {one.sample_every for one in spans.values()} == {1}
    assert len(whole.duration_ns) == 20
    assert sum(one.duration_ns for one in spans.values()).tolist() == whole.duration_ns.tolist()
    assert all((one.duration_ns >= 0).all() for one in spans.values())
    assert whole.duration_ns.sum() <= passed_ns
    for tier, action in (("database", "Send/database"), ("queue", "Send/queue wait")):
        assert spans[action].duration_ns.sum() / 1e9 == pytest.approx(after[tier] - before[tier], abs=1e-6)


def test_connections_take_turns_among_the_brokers_of_a_url(mlmq: RunningInstance, group: Group) -> None:
    before = metric(mlmq, "clients_seen_total")
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(closing(ready(MlmqSender(mlmq.url, group))))
        after = metric(mlmq, "clients_seen_total")
    assert [late - early for late, early in zip(after, before, strict=True)] == [3, 3]


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"size": 2001}, "size 2001 is more than mlmq allows; write 32 to 2000 bytes"),
        ({"size": [{"size": 64}, {"size": 4096}]}, "size 4096 is more than mlmq allows"),
        ({"address": "topic://news"}, "mlmq has queues only; write queue://news"),
        ({"address": f"queue://{'x' * 51}"}, "at most 50 characters"),
        ({"address": f"queue://{'x' * 45}", "mode": {"kind": "echo"}}, "too long for mlmq"),
        ({"address": "queue://q?priority=11"}, "mlmq has priorities 1 to 10"),
        ({"address": "queue://q?priority=0"}, "mlmq has priorities 1 to 10"),
        ({"address": "queue://q?ttl=1s"}, "mlmq does not support ttl"),
        ({"properties": {"a": "b"}}, "messages of mlmq have none"),
        ({"settle": "exactly-once"}, "mlmq does not support exactly-once"),
        ({"summarize": {"to": "topic://sums"}}, "mlmq has queues only"),
    ],
)
def test_options_that_mlmq_lacks_are_refused_when_the_experiment_is_read(
    workload: dict[str, Any], message: str
) -> None:
    document = {"name": "trial", "system": {"kind": "mlmq"}, "workload": {"protocol": "mlmq", **workload}}
    with pytest.raises(ConfigError) as raised:
        experiment_from(document)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mlmq://user:hush@127.0.0.1:8099", "MLMQ has no users"),
        ("mlmq://127.0.0.1:8099?brokers=127.0.0.1", "'127.0.0.1' is not a broker address"),
    ],
)
def test_an_invalid_url_is_refused_without_showing_its_password(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as raised:
        MlmqSender(url, Group(protocol="mlmq"))
    assert "hush" not in str(raised.value)
