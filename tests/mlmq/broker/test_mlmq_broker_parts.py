"""Do the parts of a broker that need no database work as documented?"""

import asyncio
import csv
import os
from pathlib import Path

import pytest

from crescendo.mlmq.broker.command_file import CommandFile
from crescendo.mlmq.broker.openmetrics import Metrics
from crescendo.mlmq.broker.request_queue import RequestQueue
from crescendo.mlmq.broker.settings import load_settings
from crescendo.mlmq.broker.waiting_room import WaitingRoom
from crescendo.mlmq.performance_log import PerformanceLog
from crescendo.model.errors import ConfigError


def test_a_full_queue_refuses_and_a_worker_takes_all_waiting_requests() -> None:
    async def scenario() -> None:
        queue: RequestQueue[int] = RequestQueue(5, batch=3)
        assert [queue.put(n) for n in range(7)] == [True] * 5 + [False] * 2
        assert await queue.take() == (None, [0, 1, 2])
        assert queue.put(9)
        assert await queue.take() == (None, [3, 4, 9])  # a full batch need not wait for the previous one
        assert len(queue) == 0

    asyncio.run(scenario())


def test_each_kind_has_its_lane_and_the_longest_waiting_lane_comes_first() -> None:
    async def scenario() -> None:
        queue: RequestQueue[int] = RequestQueue(10, batch=10)
        for n in range(6):
            queue.put(n, "odd" if n % 2 else "even")
        assert await queue.take() == ("even", [0, 2, 4])
        queue.put(6, "even")
        assert await queue.take() == ("odd", [1, 3, 5])
        queue.put(7, "odd")
        queue.done("odd")
        queue.done("even")
        assert await queue.take() == ("even", [6])

    asyncio.run(scenario())


def test_requests_gather_while_their_lane_is_being_served() -> None:
    async def scenario() -> None:
        queue: RequestQueue[int] = RequestQueue(10, batch=3)
        queue.put(1)
        assert await queue.take() == (None, [1])
        second = asyncio.create_task(queue.take())
        queue.put(2)
        queue.put(3)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not second.done()
        queue.put(4)  # now it is a full batch
        async with asyncio.timeout(10):
            assert await second == (None, [2, 3, 4])
        queue.put(5)
        queue.done(None)
        queue.done(None)
        assert await queue.take() == (None, [5])

    asyncio.run(scenario())


def test_sleeping_workers_are_woken_and_a_cancelled_one_loses_nothing() -> None:
    async def scenario() -> None:
        queue: RequestQueue[int] = RequestQueue(10, batch=1)
        doomed = asyncio.create_task(queue.take())
        heir = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.put(1)  # wakes the doomed worker, which is cancelled before it runs
        doomed.cancel()
        async with asyncio.timeout(10):
            assert await heir == (None, [1])
        with pytest.raises(asyncio.CancelledError):
            await doomed

    asyncio.run(scenario())


def test_requests_left_over_by_one_worker_wake_the_next() -> None:
    async def scenario() -> None:
        queue: RequestQueue[int] = RequestQueue(10, batch=2)
        takers = [asyncio.create_task(queue.take()) for _ in range(2)]
        await asyncio.sleep(0)
        for n in range(4):
            queue.put(n)
        async with asyncio.timeout(10):
            assert await asyncio.gather(*takers) == [(None, [0, 1]), (None, [2, 3])]

    asyncio.run(scenario())


def test_a_message_wakes_the_longest_waiting_plain_dequeue_and_every_selective_one() -> None:
    async def scenario() -> None:
        room: WaitingRoom[str] = WaitingRoom(10, expired=lambda item: None)
        room.park("first", {7: False}, 60)
        room.park("selective", {7: True}, 60)
        room.park("second", {7: False}, 60)
        room.park("elsewhere", {8: False}, 60)
        woken, left = room.wake(7, 1)
        assert woken == ["first", "selective"]
        assert left == 0
        assert room.wake(7, 5) == (["second"], 4)
        assert len(room) == 1
        assert room.take_oldest(5) == ["elsewhere"]

    asyncio.run(scenario())


def test_arrivals_change_for_every_key_even_when_the_room_forgets_them() -> None:
    async def scenario() -> None:
        room: WaitingRoom[str] = WaitingRoom(10, expired=lambda item: None)
        room.wake(3, 1)
        seen = room.arrivals(3), room.arrivals(4)
        assert seen == (1, 0)
        for key in range(100, 10_200):  # more keys than it remembers
            room.wake(key, 1)
        assert all(now > then for now, then in zip((room.arrivals(3), room.arrivals(4)), seen, strict=True))

    asyncio.run(scenario())


def test_an_expired_dequeue_is_removed_once() -> None:
    async def scenario() -> list[str]:
        expired: list[str] = []
        room: WaitingRoom[str] = WaitingRoom(10, expired.append)
        room.park("short", {1: False, -5: True}, 0.01)
        room.park("long", {1: False, -5: True}, 60)
        async with asyncio.timeout(10):
            while not expired:
                await asyncio.sleep(0.005)
        assert room.wake(-5, 1)[0] == ["long"]
        assert len(room) == 0
        return expired

    assert asyncio.run(scenario()) == ["short"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wokers: 4", ["wokers", "did you mean 'workers'?"]),
        ("workers: 0", ["workers", ">= 1"]),
        ("workers: many", ["workers"]),
        ("poll: 5", ["poll", "duration"]),
        ("poll: 0s", ["poll", "at least 1ms"]),
        ("listen: 0.0.0.0:8099", ["listen", "loopback"]),
        ("listen: localhost", ["listen", "loopback"]),
        ("write_buffer: 3", ["write_buffer", "1KiB"]),
        ("{database: 'postgresql://h/n', data: somewhere}", ["data", "leave out"]),
        ("- workers", ["mapping"]),
        ("workers: [", ["not YAML"]),
    ],
)
def test_a_mistake_in_the_configuration_names_file_field_and_cure(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "broker.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    for part in [str(path), *expected]:
        assert part in str(caught.value)


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.yml"
    path.write_text("{workers: 7, request_queue: 9, poll: 20ms, listen: '127.0.0.1:5'}")
    settings = load_settings(path, {"listen": "127.0.0.1:0"})
    assert (settings.workers, settings.request_queue, settings.poll, settings.listen) == (
        7,
        9,
        20_000_000,
        "127.0.0.1:0",
    )
    with pytest.raises(ConfigError, match="command line"):
        load_settings(path, {"listen": "nowhere"})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path / "absent.yml", {})


def test_a_command_counts_once_and_only_when_it_is_new(tmp_path: Path) -> None:
    path = tmp_path / "commando.txt"
    path.write_text("shutdown\n")
    file = CommandFile(path)
    assert file.poll() is None  # written before the start
    path.write_text("LogMemory \nmore")
    assert file.poll() == "logmemory"
    assert file.poll() is None
    path.write_text("logmemory")
    os.utime(path, ns=(1, 1))
    assert file.poll() == "logmemory"
    path.unlink()
    assert file.poll() is None
    path.write_bytes(b"\xff" * 10_000)
    assert file.poll() is not None  # any text, whatever it is


def test_a_performance_log_has_the_original_format(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "broker.log"
    with PerformanceLog(path, "BrokerConfiguration Port[8099]\nx") as log:
        log.log("BRcvReq", 4_900_000, 10**9, "C[9]")
        log.log("BDb#dequeueMessage#Ok#1", -5, 2 * 10**9, "C[10]")
    with path.open(newline="") as file:
        rows = list(csv.reader(file, delimiter=";"))
    assert rows[0] == ["BrokerConfiguration Port[8099] x"]
    assert [(row[0], row[2], row[3]) for row in rows[1:]] == [
        ("4", "BRcvReq", "C[9]"),
        ("0", "BDb#dequeueMessage#Ok#1", "C[10]"),
    ]
    assert int(rows[2][1]) - int(rows[1][1]) == 1000


def test_an_unwritable_performance_log_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        PerformanceLog(tmp_path / "file" / "broker.log", "x")


def test_metrics_are_complete_text_with_the_right_counts() -> None:
    metrics = Metrics()
    metrics.requests["Send", "ok"] += 3
    metrics.requests["Send", "overloaded"] += 2
    metrics.shed = 2
    metrics.tier_ns["database"] += 1_500_000_000
    metrics.gauge("waiting", "About.", lambda: 4)
    lines = metrics.openmetrics().splitlines()
    assert lines[-1] == "# EOF"
    assert 'crescendo_mlmq_requests_total{kind="Send",outcome="ok"} 3' in lines
    assert "crescendo_mlmq_shed_total 2" in lines
    assert 'crescendo_mlmq_tier_seconds_total{tier="database"} 1.500000000' in lines
    assert "crescendo_mlmq_waiting 4" in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
