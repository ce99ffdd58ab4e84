"""Which messages does a router sample, and what does its file hold?"""

import struct
from pathlib import Path

import numpy as np
import pytest

from crescendo.systems.relay import hop_samples
from crescendo.systems.relay.hop_samples import HopSamples, read_hops


def bodies(*stamps: tuple[int, int, int], magic: int = 0xC501, size: int = 40) -> np.ndarray:
    """Payloads as docs/recording.md describes them: sender, tag and sequence number of each."""
    rows = [struct.pack(">HHIQqq", magic, sender, tag, seq, 0, 0).ljust(size, b"x") for sender, tag, seq in stamps]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), size)


def test_every_hundredth_message_of_each_sender_is_sampled(tmp_path: Path) -> None:
    samples = HopSamples(tmp_path / "hops")
    samples.add(bodies(*((sender, 7, seq) for sender in (1, 2) for seq in range(250))), 1000, 2000)
    samples.add(bodies((1, 7, 300), magic=0xBEEF), 1, 2)  # not ours
    samples.add(np.zeros((3, 8), np.uint8), 1, 2)  # too short for a stamp
    samples.close()
    found = [tuple(row) for row in read_hops(tmp_path / "hops").tolist()]
    assert found == [(7, sender, seq, 1000, 2000) for sender in (1, 2) for seq in (0, 100, 200)]


def test_a_restarted_router_goes_on_within_the_limit_and_half_a_row_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hop_samples, "MAX_ROWS", 5)
    for _ in range(3):
        samples = HopSamples(tmp_path / "hops")
        samples.add(bodies(*((1, 7, seq) for seq in (0, 100))), 1, 2)
        samples.close()
    content = (tmp_path / "hops").read_bytes()
    assert len(read_hops(tmp_path / "hops")) == 5
    (tmp_path / "hops").write_bytes(content[:-1])
    assert len(read_hops(tmp_path / "hops")) == 4
