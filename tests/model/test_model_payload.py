"""Are payload sizes as the file specifies, and the same in every run?"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.payload import PayloadSize


def test_a_fixed_size_is_that_size() -> None:
    payload = PayloadSize.parse("1KB")
    assert payload == 1000
    assert payload.is_fixed
    assert payload.sizes(1, 0)(7, 3).tolist() == [1000] * 3


def test_an_approximate_size_is_within_five_percent_and_reaches_both_ends() -> None:
    sizes = PayloadSize.parse("~256").sizes(1, 0)(0, 20_000)
    assert sizes.min() == 256 - 12
    assert sizes.max() == 256 + 12
    assert abs(sizes.mean() - 256) < 0.5


def test_weights_are_shares() -> None:
    payload = PayloadSize.parse([{"size": 100, "weight": 3}, {"size": "1KB"}])
    assert payload == (3 * 100 + 1000) // 4
    sizes = payload.sizes(1, 0)(0, 40_000)
    assert set(sizes.tolist()) == {100, 1000}
    assert abs(float((sizes == 100).mean()) - 0.75) < 0.02


def test_lines_of_a_file_are_sent_in_order_and_repeat(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nbcd\n\nxy")
    payload = PayloadSize.parse({"file": str(path)})
    assert payload.lines == [b"a", b"bcd", b"", b"xy"]
    assert payload.sizes(1, 0)(2, 6).tolist() == [32, 34, 33, 35, 32, 34]
    assert payload.largest == 35


@given(st.integers(0, 20_000), st.integers(1, 9_000), st.integers(0, 5), st.data())
def test_the_size_of_a_message_depends_on_its_number_alone(
    first: int, count: int, sender: int, data: st.DataObject
) -> None:
    payload = PayloadSize.parse("~1000")
    whole = payload.sizes(3, sender)(first, count)
    assert len(whole) == count
    at = data.draw(st.integers(0, count - 1))
    assert payload.sizes(3, sender)(first + at, 1)[0] == whole[at]
    assert np.array_equal(payload.sizes(3, sender)(first, count), whole)


@pytest.mark.parametrize(
    "wrong", [31, "~10", [], [{"weight": 1}], [{"size": 64, "weight": 0}], {"path": "x"}, "big", True]
)
def test_an_invalid_size_is_rejected(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"size|entries|weight|file"):
        PayloadSize.parse(wrong)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        _ = PayloadSize.parse({"file": str(tmp_path / "nowhere")}).lines
