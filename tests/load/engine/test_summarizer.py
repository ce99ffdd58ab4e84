"""Does a receiver publish for each period exactly what it received in it?"""

import json
from typing import Any

import numpy as np

from crescendo.load.engine.summarizer import Summarizer
from crescendo.model.units import Duration
from crescendo.model.workload import Summarize
from load_fakes import FakeSendChannel

SECOND = 10**9


class CapturingChannel(FakeSendChannel):
    """Keeps the summaries that were sent."""

    def __init__(self) -> None:
        super().__init__(capacity=1)
        self.texts: list[dict[str, Any]] = []

    def send(self, first_seq: int, count: int) -> None:
        assert (first_seq, count) == (len(self.texts), 1)
        self.texts.append(json.loads(self.bodies[0].tobytes()))

    def pump(self) -> list[Any]:
        return []


def payloads(*bodies: bytes) -> Any:
    return np.frombuffer(b"".join(body.ljust(200) for body in bodies), np.uint8).reshape(len(bodies), 200)


def test_counts_are_published_every_period_even_when_empty() -> None:
    channel = CapturingChannel()
    summarizer = Summarizer(Summarize(to="topic://summary", every=Duration(SECOND)), 4, channel)
    summarizer.begin(100 * SECOND)
    summarizer.take(payloads(b"a", b"b"))
    summarizer.tick(100 * SECOND + 1)
    summarizer.take(payloads(b"c"))
    summarizer.tick(101 * SECOND)
    summarizer.tick(102 * SECOND)
    summarizer.take(payloads(b"d"))
    summarizer.tick(104 * SECOND)
    channel.release()
    assert [text["messages"] for text in channel.texts] == [3, 0, 1, 0]
    assert {(text["receiver"], text["period_s"]) for text in channel.texts} == {(4, 1.0)}


def test_the_last_period_is_published_with_its_length() -> None:
    channel = CapturingChannel()
    summarizer = Summarizer(Summarize(to="topic://summary", every=Duration(SECOND)), 4, channel)
    summarizer.begin(0)
    summarizer.take(payloads(b"a"))
    summarizer.tick(SECOND)
    summarizer.take(payloads(b"b", b"c"))
    summarizer.end(SECOND + SECOND // 4)
    summarizer.end(SECOND + SECOND // 2)  # nothing arrived since
    channel.release()
    assert [(text["messages"], text["period_s"]) for text in channel.texts] == [(1, 1.0), (2, 0.25)]


def test_transfer_logs_are_summed_by_server() -> None:
    channel = CapturingChannel()
    summarizer = Summarizer(Summarize(to="topic://summary", of="transfers"), 0, channel)
    summarizer.begin(0)
    stamp = b"\0" * 32
    lines = [
        b"DATE=20070809 HOST=one.example NBYTES=1000 STREAMS=1",
        b"HOST=two.example NL.EVNT=FTP_INFO NBYTES=5",
        b"HOST=one.example NBYTES=24",
        b"HOST=one.example NBYTES=many",
        b"no transfer at all",
    ]
    summarizer.take(payloads(*(stamp + line for line in lines)))
    summarizer.tick(SECOND)
    channel.release()
    assert channel.texts == [{"receiver": 0, "period_s": 1.0, "bytes": {"one.example": 1024, "two.example": 5}}]
