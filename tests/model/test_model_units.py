"""Are durations, sizes and extents parsed exactly?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.units import Duration, Extent, LineRate, Share, Size, format_ns, format_unit, parse_unit


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("30s", 30 * 10**9), ("15m", 900 * 10**9), ("2h", 7200 * 10**9), ("500ms", 5 * 10**8), ("1.5s", 1_500_000_000),
        ("10us", 10_000), ("10µs", 10_000), ("7ns", 7), (" 1 s ", 10**9), (0, 0), ("0s", 0), ("0.1s", 10**8),
        ("0.000000001s", 1),
    ],
)  # fmt: skip
def test_durations_are_exact(text: object, ns: int) -> None:
    assert Duration.parse(text) == ns


@pytest.mark.parametrize("text", ["30", 30, "s", "-5s", "1e3s", "5 seconds", "5S", "", None, True, False, [], "0.5ns"])
def test_an_invalid_duration_is_rejected(text: object) -> None:
    with pytest.raises(ValueError, match=r"duration|finer"):
        Duration.parse(text)


@given(st.integers(0, 10**18))
def test_a_duration_reads_back_as_it_was_written(ns: int) -> None:
    assert Duration.parse(str(Duration(ns))) == ns


@pytest.mark.parametrize(
    ("text", "octets"),
    [(256, 256), ("256", 256), ("10KB", 10_000), ("10KiB", 10_240), ("1MiB", 2**20), ("1.5MB", 1_500_000), ("9B", 9)],
)
def test_sizes_are_exact(text: object, octets: int) -> None:
    assert Size.parse(text) == octets


@pytest.mark.parametrize("text", ["10kb", "10K", -5, "-5", 1.5, None, True, "0.5B", "1.0001KB", "many"])
def test_an_invalid_size_is_rejected(text: object) -> None:
    with pytest.raises(ValueError, match=r"size|finer"):
        Size.parse(text)


@pytest.mark.parametrize(("text", "count"), [(1, 1), (5000, 5000), ("5000", 5000), ("007", 7), ("5000 messages", 5000)])
def test_an_extent_may_be_a_count(text: object, count: int) -> None:
    extent = Extent.parse(text)
    assert (extent.messages, extent.duration) == (count, None)


@pytest.mark.parametrize(("text", "ns"), [("15m", 900 * 10**9), ("1500ms", 1_500_000_000)])
def test_an_extent_may_be_a_duration(text: str, ns: int) -> None:
    extent = Extent.parse(text)
    assert (extent.messages, extent.duration) == (None, ns)
    assert Extent.parse(str(extent)) == extent


@pytest.mark.parametrize("text", [-1, "0", "-5", True, False, 1.5, None, [], "²", "soon", "1e3"])
def test_an_invalid_extent_is_rejected_with_the_right_form(text: object) -> None:
    with pytest.raises(ValueError, match="count"):
        Extent.parse(text)


def test_only_units_have_hooks() -> None:
    assert parse_unit(Size, "1KB") == 1000
    assert format_unit(Duration(1000)) == "1us"
    with pytest.raises(NotImplementedError):
        parse_unit(complex, "1")
    with pytest.raises(NotImplementedError):
        format_unit(1j)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 µs"), (2_340_000, "2.34 ms"), (-2_340_000, "-2.34 ms"), (12e9, "12 s")],
)
def test_times_are_shown_in_the_unit_that_fits(ns: float, text: str) -> None:
    assert format_ns(ns) == text


@pytest.mark.parametrize(
    ("text", "bits"), [("20Mbit", 20_000_000), ("512kbit", 512_000), ("1.5Gbit", 1_500_000_000), ("9600bit", 9600)]
)
def test_line_rates_are_bits_per_second(text: str, bits: int) -> None:
    assert LineRate.parse(text) == bits
    assert LineRate.parse(str(LineRate.parse(text))) == bits


@pytest.mark.parametrize("text", ["20", 20, "20MB", "20 Mbits", "-1Mbit", True, None])
def test_a_line_rate_without_its_unit_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="bit rate such as 20Mbit"):
        LineRate.parse(text)


def test_shares_are_percentages() -> None:
    assert Share.parse("1%") == 0.01
    assert Share.parse(0) == 0
    assert str(Share.parse("0.5%")) == "0.5%"
    for text in ("1", 1, "101%", "-1%", True):
        with pytest.raises(ValueError, match="0 % to 100 %"):
            Share.parse(text)
