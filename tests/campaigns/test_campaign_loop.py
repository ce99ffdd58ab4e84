"""Is every run of a campaign counted exactly once, whatever happens to the campaign?"""

import fcntl
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.campaigns import campaign_loop
from crescendo.campaigns.campaign_loop import LOCK_FILE, CampaignView, expected_seconds, run_campaign
from crescendo.model.campaign import Campaign
from crescendo.model.campaign_file import campaign_from
from crescendo.model.errors import ConfigError, CrescendoError, LostError, PeerError
from crescendo.model.experiment import Experiment
from crescendo.model.verdict import Outcome
from crescendo.record.campaign_journal import Attempt, AttemptState, CampaignJournal, read_journal
from crescendo.record.summary import Summary, write_summary
from fake_carrier import FakeCarrier, Killed

EXPERIMENT = {"workload": {"rate": 10, "size": 100}, "phases": {"measure": "1s"}}
FACTORS = {"workload.rate": [10, 20], "workload.size": [100, 200, 300]}


def campaign_of(**settings: object) -> Campaign:
    document = {"experiment": EXPERIMENT, "factors": FACTORS, "metrics": ["rate"], **settings}
    return campaign_from(document, default_name="trial")


def counted_slots(journal: CampaignJournal) -> list[tuple[int, int]]:
    return sorted((attempt.point, attempt.repeat) for attempt in journal.counted)


class KillAfter:
    """Raises Killed at the given numbers of steps, counted over all starts of a campaign."""

    def __init__(self, at: set[int]) -> None:
        self._at, self._steps = at, 0

    def __call__(self) -> None:
        self._steps += 1
        if self._steps in self._at:
            raise Killed


def test_the_journal_knows_in_which_runs_relays_stood_in_for_routers(tmp_path: Path) -> None:
    carrier = FakeCarrier(relays=lambda experiment: 3 if experiment.workload[0].rate == 20 else 0)
    journal = run_campaign(campaign_of(), tmp_path / "trial", carrier, CampaignView())
    found = {(journal.points[each.point].levels[0], each.stand_ins) for each in journal.counted}
    assert found == {("10", 0), ("20", 3)}


@settings(max_examples=25)
@given(
    kills=st.sets(st.integers(1, 120), max_size=12),
    invalid=st.sets(st.integers(0, 30), max_size=8),
    repeat=st.integers(1, 2),
)
def test_a_campaign_that_is_killed_at_any_point_counts_every_run_once(
    kills: set[int], invalid: set[int], repeat: int
) -> None:
    """The journal is killed before and after each of its writes, too."""
    campaign = campaign_of(repeat=repeat, retries=100)
    kill = KillAfter(kills)
    carrier = FakeCarrier(kill, lambda _, number: Outcome.INVALID if number in invalid else Outcome.FAIL)
    write = campaign_loop.write_journal

    def dangerous_write(directory: Path, journal: CampaignJournal) -> None:
        kill()
        write(directory, journal)
        kill()

    with tempfile.TemporaryDirectory() as out, pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign_loop, "write_journal", dangerous_write)
        patch.setattr(os, "fsync", lambda _descriptor: None)  # a kill is not a power cut, and the disk is slow
        directory = Path(out) / "trial"
        for _ in range(len(kills) + 1):
            try:
                journal = run_campaign(campaign, directory, carrier, CampaignView())
                break
            except Killed:
                continue
        assert journal == read_journal(directory)
        runs = [attempt.run for attempt in journal.attempts if attempt.run]
        left = {path.name for path in directory.iterdir() if path.is_dir()}
    assert counted_slots(journal) == [(point, block) for point in range(6) for block in range(repeat)]
    assert journal.complete
    assert Counter(runs).most_common(1)[0][1] == 1  # no recording counts for two
    assert set(runs) == left
    assert not any(attempt.state is AttemptState.STARTED for attempt in journal.attempts)


def test_runs_are_drawn_in_blocks_and_the_order_belongs_to_the_seed(tmp_path: Path) -> None:
    orders = []
    for seed in (1, 1, 2):
        carrier = FakeCarrier()
        run_campaign(campaign_of(repeat=3, seed=seed), tmp_path / str(len(orders)), carrier, CampaignView())
        orders.append([experiment.name for experiment in carrier.started])
    assert orders[0] == orders[1] != orders[2]
    for block in range(3):
        assert len(set(orders[0][6 * block : 6 * block + 6])) == 6
    assert orders[0][:6] != orders[0][6:12]


def test_repeats_have_other_seeds_and_points_their_levels(tmp_path: Path) -> None:
    carrier = FakeCarrier()
    run_campaign(campaign_of(repeat=2, order="written"), tmp_path / "trial", carrier, CampaignView())
    assert {(each.seed, each.workload[0].rate, int(each.workload[0].size)) for each in carrier.started} == {
        (seed, rate, size) for seed in (1, 2) for rate in (10, 20) for size in (100, 200, 300)
    }


def test_an_invalid_run_is_repeated_a_stated_number_of_times_and_never_counted(tmp_path: Path) -> None:
    def outcome(experiment: Experiment, _number: int) -> Outcome:
        return Outcome.INVALID if experiment.name == "trial.002" else Outcome.PASS

    carrier = FakeCarrier(outcome=outcome)
    journal = run_campaign(campaign_of(retries=3), tmp_path / "trial", carrier, CampaignView())
    assert Counter(each.name for each in carrier.started)["trial.002"] == 4
    assert len(counted_slots(journal)) == 5
    assert not journal.complete
    assert journal.ending == "1 of 6 runs were invalid however often they were repeated"
    assert journal.values_of("rate")[1] == []


@pytest.mark.parametrize("error", [LostError("Spark is gone"), PeerError("the broker closed the connection")])
def test_a_lost_run_is_an_invalid_one_and_the_campaign_goes_on(tmp_path: Path, error: CrescendoError) -> None:
    class Losing(FakeCarrier):
        def run(self, experiment: Experiment, out: Path) -> object:
            if len(self.started) == 2 and not getattr(self, "lost", False):
                self.lost = True
                raise error
            return super().run(experiment, out)

    journal = run_campaign(campaign_of(), tmp_path / "trial", Losing(), CampaignView())
    assert journal.complete
    assert [each.reason for each in journal.attempts if each.state is AttemptState.INVALID] == [str(error)]


def test_a_mistake_in_the_first_run_ends_the_campaign(tmp_path: Path) -> None:
    class Mistaken(FakeCarrier):
        def run(self, experiment: Experiment, out: Path) -> object:
            raise ConfigError("no broker at amqp://x")

    with pytest.raises(ConfigError, match="no broker"):
        run_campaign(campaign_of(), tmp_path / "trial", Mistaken(), CampaignView())
    assert read_journal(tmp_path / "trial").attempts == []


def test_points_are_repeated_until_their_interval_is_narrow(tmp_path: Path) -> None:
    """Rates of point 3 vary by 20 %, those of the others do not."""
    values = {"trial.003": iter([100, 120, 80, 101, 119, 81, 100, 100])}
    carrier = FakeCarrier(rate=lambda experiment: float(next(values.get(experiment.name, iter([100])))))
    campaign = campaign_of(repeat=2, until={"metric": "rate", "narrower": "10%", "repeats": 6})
    journal = run_campaign(campaign, tmp_path / "trial", carrier, CampaignView())
    assert [len(each) for each in journal.values_of("rate")] == [2, 2, 6, 2, 2, 2]
    assert journal.complete


def test_what_until_decides_by_is_measured_although_metrics_do_not_name_it(tmp_path: Path) -> None:
    until = {"metric": "rate", "narrower": "10%", "repeats": 6}
    journal = run_campaign(
        campaign_of(repeat=2, metrics=["lost"], until=until), tmp_path / "trial", FakeCarrier(), CampaignView()
    )
    assert [len(each) for each in journal.values_of("rate")] == [2] * 6
    assert journal.complete


def test_a_metric_that_is_added_later_is_read_from_the_recordings(tmp_path: Path) -> None:
    """The summary of the second run is gone."""

    class Keeping(FakeCarrier):
        def run(self, experiment: Experiment, out: Path) -> tuple[Path, Summary] | None:
            done = super().run(experiment, out)
            if done is not None and len(self.started) != 2:
                write_summary(*done)
            return done

    carrier = Keeping(rate=lambda experiment: float(experiment.name[-1]))
    before = run_campaign(campaign_of(metrics=["lost"], order="written"), tmp_path / "trial", carrier, CampaignView())
    assert before.values_of("rate") == [[]] * 6
    campaign = campaign_of(metrics=["lost", "rate"], order="written")
    journal = run_campaign(campaign, tmp_path / "trial", carrier, CampaignView())
    assert journal.values_of("rate") == [[1.0], [], [3.0], [4.0], [5.0], [6.0]]
    assert journal.values_of("lost") == before.values_of("lost")
    assert len(carrier.started) == 6


def test_a_recovered_run_says_nothing_about_how_long_runs_take() -> None:
    attempts = [Attempt(0, 0, AttemptState.COUNTED, seconds=0.0), Attempt(1, 0, AttemptState.COUNTED, seconds=40.0)]
    assert expected_seconds(campaign_of(), attempts) == 40.0
    assert expected_seconds(campaign_of(), attempts[:1]) == expected_seconds(campaign_of()) > 1.0


def test_the_budget_ends_a_campaign_and_a_larger_one_continues_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 10_000, 10))  # each run takes ten seconds by this clock
    monkeypatch.setattr(campaign_loop.time, "monotonic", lambda: float(next(now)))
    carrier = FakeCarrier()
    journal = run_campaign(campaign_of(budget="35s"), tmp_path / "trial", carrier, CampaignView())
    assert len(journal.counted) == 3
    assert (journal.complete, journal.ending) == (False, "the budget of 35s is spent, with 3 runs left")
    journal = run_campaign(campaign_of(budget="2h"), tmp_path / "trial", carrier, CampaignView())
    assert journal.complete
    assert len(carrier.started) == 6


def test_a_changed_campaign_does_not_continue_the_old_one(tmp_path: Path) -> None:
    run_campaign(campaign_of(), tmp_path / "trial", FakeCarrier(), CampaignView())
    with pytest.raises(ConfigError, match="another version of this campaign"):
        run_campaign(campaign_of(seed=2), tmp_path / "trial", FakeCarrier(), CampaignView())


def test_two_processes_never_run_the_same_campaign(tmp_path: Path) -> None:
    lock = os.open(tmp_path / LOCK_FILE, os.O_WRONLY | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(ConfigError, match="another process"):
            run_campaign(campaign_of(), tmp_path, FakeCarrier(), CampaignView())
    finally:
        os.close(lock)
