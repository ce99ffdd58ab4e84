"""Do campaigns over a load or a size end with laws, their intervals, and a knee?"""

import msgspec
import pytest

from crescendo.campaigns.campaign_loop import new_journal
from crescendo.campaigns.ranked_factors import campaign_effects
from crescendo.campaigns.scaling import is_latency, is_throughput
from crescendo.model.campaign_file import campaign_from
from crescendo.pipeline.queueing.latency_knee import latency_knee
from crescendo.record.campaign_journal import Attempt, AttemptState, CampaignJournal
from crescendo.report.campaign_page import render_campaign

SIZES = [1, 2, 4, 8, 16, 32]
CONTENTION, COHERENCY = 0.05, 0.002


def usl(size: float) -> float:
    return 1000 * size / (1 + CONTENTION * (size - 1) + COHERENCY * size * (size - 1))


def journal_of(sizes: list[int], factors: dict[str, list[int]] | None = None) -> CampaignJournal:
    campaign = campaign_from(
        {
            "name": "growth",
            "experiment": {"workload": {"rate": 10}},
            "factors": {"workload.senders": sizes, **(factors or {})},
            "metrics": ["rate", "response_p99"],
        }
    )
    attempts = []
    for point in campaign.points:
        size = float(point.levels[0]) * (1 if len(point.levels) == 1 or point.row[1] == 0 else 5)
        for repeat, noise in enumerate((0.998, 1.002)):
            values = {"rate": usl(size) * noise, "response_p99": 1e6 * (1 + (size / 8) ** 3) * noise}
            attempts.append(Attempt(point.number, repeat, AttemptState.COUNTED, "", "pass", "", 1.0, values))
    return msgspec.structs.replace(new_journal(campaign), attempts=attempts, complete=True, ending="done")


def test_planted_coefficients_are_inside_their_intervals() -> None:
    (curve,) = campaign_effects(journal_of(SIZES)).scaling
    law = next(each for each in curve.laws if each.law == "usl")
    for name, planted in (("contention", CONTENTION), ("coherency", COHERENCY), ("one", 1000)):
        value, low, high = law.coefficients[name]
        assert low <= planted <= high
        assert value == pytest.approx(planted, rel=0.05)
    assert law.peak == pytest.approx(((1 - CONTENTION) / COHERENCY) ** 0.5, rel=0.05)
    assert not law.warnings
    amdahl = next(each for each in curve.laws if each.law == "amdahl")
    assert amdahl.peak is None


def test_an_extrapolated_peak_is_warned_about_in_the_units_of_the_factor() -> None:
    """Loads of 100 to 800: the peak lies beyond them, and the law counts from the smallest."""
    journal = journal_of([100, 200, 400, 800])
    attempts = [
        msgspec.structs.replace(each, values={"rate": usl(float(journal.points[each.point].levels[0]) / 100)})
        for each in journal.attempts
    ]
    (curve,) = campaign_effects(msgspec.structs.replace(journal, attempts=attempts)).scaling
    law = curve.laws[0]
    assert law.peak == pytest.approx(2179, rel=0.1)
    assert any("beyond the largest size that was measured, 800" in warning for warning in law.warnings)


def test_the_knee_has_the_highest_power_and_is_never_at_an_end() -> None:
    (knee,) = campaign_effects(journal_of(SIZES)).knees
    powers = {size: usl(size) / (1 + (size / 8) ** 3) for size in SIZES}
    assert knee.knee == max(powers, key=lambda size: powers[size])
    assert not knee.warning
    loads = [1.0, 2.0, 3.0, 4.0]
    assert "lies beyond it" in latency_knee(loads, loads, [1.0, 1.0, 1.0, 1.0]).warning
    assert "at or below" in latency_knee(loads, [1.0] * 4, loads).warning
    with pytest.raises(ValueError, match="4 or more different loads"):
        latency_knee([1, 2, 3], [1, 2, 3], [1, 1, 1])


def test_one_curve_is_about_one_level_of_the_other_factors() -> None:
    journal = journal_of(SIZES, {"workload.size": [100, 200]})
    curves = campaign_effects(journal).scaling
    assert [curve.factor for curve in curves] == ["workload.senders"]
    assert curves[0].values[0] == pytest.approx([usl(1) * 0.998, usl(1) * 1.002])
    assert campaign_effects(journal_of([1, 2, 4])).scaling == []


def test_the_page_draws_laws_and_knee_and_quotes_intervals() -> None:
    journal = journal_of(SIZES)
    page = render_campaign(journal, campaign_effects(journal))
    assert "Universal Scalability Law: 1,00" in page
    assert "contention 0.05 (" in page
    assert "is highest at workload.senders 8" in page or "is highest at workload.senders 4" in page
    assert 'data-chart="scaling-0"' in page
    assert 'data-chart="knee-0"' in page


def test_metrics_know_what_they_are() -> None:
    assert is_throughput("rate")
    assert is_throughput("span.CSndReq#SendMessage.count")
    assert not is_throughput("response_p99")
    assert is_latency("orders.response_p99")
    assert is_latency("span.CSndReq#SendMessage.p50")
    assert not is_latency("reading.a/b/c.mean")
    assert not is_latency("lost")
