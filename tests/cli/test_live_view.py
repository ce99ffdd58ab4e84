"""Does the first line of a run show both sides, and neither as idle because its report is still missing?"""

import time

import pytest

from crescendo.cli.live_view import LiveView
from crescendo.control.conductor.plan import PeerPlan, RunPlan
from crescendo.control.conductor.state import PeerState, RunState, Stage
from crescendo.control.notes import Statistics


def test_nothing_is_shown_until_both_sides_have_reported(capsys: pytest.CaptureFixture[str]) -> None:
    now_ns = time.monotonic_ns()
    plans = {name: PeerPlan(f"{name}-0", name, {}) for name in ("sender", "receiver")}
    plan = RunPlan(tuple(plans.values()), 0, 10**10, 10**9, {})

    def state(stage: Stage = Stage.RUNNING, **messages: int) -> RunState:
        peers = {
            each.id: PeerState(
                each, statistics=Statistics(now_ns, {}, messages[name], 500.0) if name in messages else None
            )
            for name, each in plans.items()
        }
        return RunState(plan, now_ns, peers, stage=stage, t0_ns=now_ns)

    with LiveView() as view:
        view(state(receiver=250))
        view(state(sender=0, receiver=250))
        assert capsys.readouterr().err == ""
        view(state(sender=250, receiver=250))
    assert "sending 500 msg/s, receiving 500 msg/s" in capsys.readouterr().err
    with LiveView() as view:
        view(state(Stage.DRAINING, sender=250, receiver=250))
    assert capsys.readouterr().err == "  draining: receiving 500 msg/s\n"
