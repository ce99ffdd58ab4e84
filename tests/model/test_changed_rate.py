"""Is every message due when it should be, though the rate was changed?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.changed_rate import ChangedRatePacer, with_changes
from crescendo.model.experiment_file import experiment_from
from crescendo.model.pacer import ConstantPacer, UnboundedPacer, messages_within
from crescendo.model.schedule import offered

SECOND = 10**9
CHANGES = st.lists(
    st.tuples(st.integers(0, 20 * SECOND), st.floats(0.5, 5000)), min_size=1, max_size=4, unique_by=lambda one: one[0]
).map(sorted)


def test_by_hand() -> None:
    pacer = ChangedRatePacer(ConstantPacer(10), 10, [(SECOND, 20), (2 * SECOND, 5)])
    # Ten in the first second, twenty in the second, then five per second.
    due = pacer.due_ns(np.arange(36))
    assert due[:10].tolist() == [n * 100_000_000 for n in range(10)]
    assert due[10:30].tolist() == [SECOND + n * 50_000_000 for n in range(20)]
    assert due[30:36].tolist() == [2 * SECOND + n * 200_000_000 for n in range(6)]
    assert [messages_within(pacer, n * SECOND) for n in range(4)] == [0, 10, 30, 35]


@given(st.floats(0.5, 5000), st.floats(0, 0.99), CHANGES, st.lists(st.integers(0, 25 * SECOND), max_size=20))
def test_counts_and_due_times_agree(
    rate: float, phase: float, changes: list[tuple[int, float]], moments: list[int]
) -> None:
    pacer = ChangedRatePacer(ConstantPacer(rate, phase), rate, changes)
    for elapsed_ns in (*moments, *(offset_ns for offset_ns, _ in changes)):
        count = pacer.due_count(elapsed_ns)
        around = pacer.due_ns(np.arange(max(count - 1, 0), count + 1))
        assert around[-1] > elapsed_ns
        assert count == 0 or around[0] <= elapsed_ns


@given(st.floats(0.5, 5000), CHANGES)
def test_a_change_leaves_everything_before_it_alone(rate: float, changes: list[tuple[int, float]]) -> None:
    before = with_changes(ConstantPacer(rate), rate, changes[:-1])
    after = with_changes(ConstantPacer(rate), rate, changes)
    count = before.due_count(changes[-1][0] - 2)
    assert after.due_count(changes[-1][0] - 2) == count
    numbers = np.arange(min(count, 5000))
    assert (before.due_ns(numbers) == after.due_ns(numbers)).all()


def test_the_offered_load_is_integrated() -> None:
    experiment = experiment_from(
        {
            "name": "x",
            "system": {"kind": "loopback"},
            "workload": {"senders": 2, "receivers": 1, "rate": 100},
            "phases": {"warmup": "1s", "measure": "4s", "drain": "1s"},
        }
    )
    assert offered(experiment) == pytest.approx(200)
    # One of the four seconds at 100, three at 300, on two connections.
    assert offered(experiment, [(2 * SECOND, 300)]) == pytest.approx(2 * (100 + 3 * 300) / 4, rel=0.01)


def test_a_pacer_without_a_rate_has_none_to_change() -> None:
    with pytest.raises(ValueError, match="none to change"):
        ChangedRatePacer(UnboundedPacer(), 0, [(1, 5.0)])
