"""The page of a campaign: a function of its journal and its effects."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crescendo.campaigns.campaign_loop import new_journal
from crescendo.campaigns.ranked_factors import campaign_effects
from crescendo.cli.report import report
from crescendo.model.campaign_file import campaign_from
from crescendo.record.campaign_effects import write_effects
from crescendo.record.campaign_journal import Attempt, AttemptState, CampaignJournal, write_journal
from crescendo.report.campaign_page import CAMPAIGN_PAGE, render_campaign, write_campaign_page


def journal_of(values: dict[tuple[int, int], float], **settings: Any) -> CampaignJournal:
    """A campaign over rate and size with these values of the metric, by point and repeat."""
    document = {
        "name": "two",
        "experiment": {"workload": {"rate": 10}},
        "factors": {"workload.rate": [10, 20], "workload.size": [100, 200]},
        "design": "2^k",
        "metrics": ["response_p99"],
        **settings,
    }
    attempts = [
        Attempt(point, repeat, AttemptState.COUNTED, f"run-{point}-{repeat}", "pass", "", 60.0, {"response_p99": value})
        for (point, repeat), value in values.items()
    ]
    failed = Attempt(0, 0, AttemptState.INVALID, "run <x>", "invalid", "generator <late>", 60.0)
    return msgspec.structs.replace(
        new_journal(campaign_from(document)),
        attempts=[failed, *attempts],
        ending="every run was counted",
        complete=True,
    )


def figures(page: str) -> dict[str, Any]:
    found = re.search(r'id="figures">(.*?)</script>', page)
    assert found
    drawn: dict[str, Any] = json.loads(found[1])
    return drawn


MS = 1e6
VALUES = {(point, repeat): MS * (10 + 4 * (point >= 2) + 0.01 * repeat) for point in range(4) for repeat in range(2)}


def test_the_largest_factor_comes_first_in_a_sentence_with_its_interval() -> None:
    journal = journal_of(VALUES)
    page = render_campaign(journal, campaign_effects(journal))
    sentences = re.findall(r'<ol class="ranked"><li>(.*?)</li><li>(.*?)</li></ol>', page)
    assert sentences[0][0].startswith("From 10 to 20, workload.rate raises response_p99 by 4 ms (")
    assert sentences[0][1].startswith("No effect of workload.size on response_p99 was found")
    assert "1 run of them failed" not in page


def test_the_page_says_that_a_relay_is_a_stand_in() -> None:
    journal = journal_of(VALUES)
    assert "stand-in" not in render_campaign(journal, campaign_effects(journal))
    attempts = [msgspec.structs.replace(each, stand_ins=2 if each.point == 1 else 0) for each in journal.attempts]
    journal = msgspec.structs.replace(journal, attempts=attempts)
    assert "2 of 8 runs used relays. A relay is a stand-in" in render_campaign(journal, campaign_effects(journal))


def test_every_run_is_linked_and_text_of_others_is_escaped() -> None:
    journal = journal_of(VALUES)
    page = render_campaign(journal, campaign_effects(journal))
    assert "run%20%3Cx%3E/report.html" in page
    assert "generator &lt;late&gt;" in page
    assert "<late>" not in page
    assert len(re.findall(r'href="[^#][^"]*report\.html"', page)) == 9


def test_effects_and_interactions_are_drawn() -> None:
    journal = journal_of(VALUES)
    drawn = figures(render_campaign(journal, campaign_effects(journal)))
    effects = {trace["name"]: trace for trace in drawn["effects-0"]["data"]}
    assert effects["effect"]["x"] == [2 / 12.005]  # half of 4 ms, relative to the mean
    lines = drawn["interaction-0-0"]["data"]
    assert [trace["y"] for trace in lines] == [[MS * 10.005, MS * 14.005]] * 2
    assert len(drawn["residuals-0"]["data"][0]["x"]) == 8


def test_a_campaign_that_measured_nothing_says_so(tmp_path: Path) -> None:
    journal = msgspec.structs.replace(journal_of({}), complete=False, ending="interrupted")
    write_journal(tmp_path, journal)
    write_effects(tmp_path, campaign_effects(journal))
    page = write_campaign_page(tmp_path).read_text(encoding="utf-8")
    assert (tmp_path / CAMPAIGN_PAGE).is_file()
    assert "no run that counts has a value of this metric" in page
    assert 'class="verdict invalid"' in page


def test_a_metric_that_never_varied_ranks_no_factor() -> None:
    journal = journal_of(dict.fromkeys(VALUES, 0.0))
    (found,) = campaign_effects(journal).metrics
    assert (found.mean, found.effects) == (0.0, [])
    page = render_campaign(journal, campaign_effects(journal))
    assert "the same in every run: no factor changed it" in page
    assert '<ol class="ranked"><li>' not in page


def test_the_verb_report_writes_the_page_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = journal_of(VALUES)
    write_journal(tmp_path, journal)
    write_effects(tmp_path, campaign_effects(journal))
    assert report([tmp_path]) == 0
    assert capsys.readouterr().out == f"report  {tmp_path / CAMPAIGN_PAGE}\n"


def test_multiplied_effects_are_factors() -> None:
    """A factor that doubles, with repeats that vary by a tenth of the value."""
    factors = {"workload.rate": [1, 2, 3, 4], "workload.size": [100, 200]}
    base = {0: 1, 1: 1, 2: 10, 3: 10, 4: 100, 5: 100, 6: 1000, 7: 1000}
    noise = (0.9, 1.1, 1.0, 0.85, 1.15)
    values = {(point, at): MS * base[point] * noise[at] for point in base for at in range(5)}
    journal = journal_of(values, factors=factors, design="full")
    effects = campaign_effects(journal).metrics[0]
    assert (effects.scale, effects.method, effects.basis) == ("logarithmic", "variance", "repeats")
    assert (
        "multiplies response_p99 by 1e+03 from its lowest mean, at 1, to its highest, at 4"
        in effects.effects[0].sentence
    )


def test_every_point_has_its_largest_value_mean_and_deviation_and_a_distribution() -> None:
    values = {(point, repeat): MS * (10 * (point + 1) + repeat) for point in range(4) for repeat in range(5)}
    journal = journal_of(values)
    page = render_campaign(journal, campaign_effects(journal))
    # 10 to 14 ms: mean 12, and the deviation of five consecutive numbers is the root of 2.5.
    row = r'<th scope="row">10</th><th scope="row">100</th>' + "".join(
        rf'<td class="number">{cell}</td>' for cell in ("5", "14 ms", "12 ms", "1.58 ms", "10 ms")
    )
    assert re.search(row, page), page[page.index("Every point") :][:900]
    assert "Map of means" in page
    (drawn,) = [figure for name, figure in figures(page).items() if name.startswith("distribution")]
    assert drawn["data"][0]["x"] == [MS * (10 + repeat) for repeat in range(5)]
    assert drawn["data"][0]["y"] == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_a_campaign_over_sizes_draws_a_curve_per_network() -> None:
    """Rates by hand: 1,000 msg/s of 100 B are 100 kB/s, and 10,000 of them take 10 s."""
    networks = {"one": {"workload.senders": 1}, "two": {"workload.senders": 2}}
    factors = {"network": {"levels": networks}, "workload.size": [100, "1KB", "10KB"]}
    document = {"name": "sizes", "experiment": {}, "factors": factors, "metrics": ["rate"]}
    journal = new_journal(campaign_from(document))
    rates = {("one", "100"): 1000.0, ("one", "1KB"): 500.0, ("two", "100"): 250.0, ("two", "1KB"): 100.0}
    attempts = [
        Attempt(number, 0, AttemptState.COUNTED, "run", "pass", "", 1.0, {"rate": rates[key]})
        for number, point in enumerate(journal.points)
        if (key := (point.levels[0], point.levels[1])) in rates
    ]
    journal = msgspec.structs.replace(journal, attempts=attempts, ending="the budget is spent")
    page = render_campaign(journal, campaign_effects(journal))
    drawn = figures(page)
    assert [(trace["x"], trace["y"]) for trace in drawn["curve-0"]["data"]] == [
        ([100, 1000], [1000.0, 500.0]),
        ([100, 1000], [250.0, 100.0]),
    ]
    assert [trace["y"] for trace in drawn["curve-1"]["data"]] == [[100_000.0, 500_000.0], [25_000.0, 100_000.0]]
    assert drawn["curve-2"]["data"][0]["y"] == [10e9, 20e9]
    assert "100 kB/s (× 1.00)" in page
    assert "(× 0.25)" in page


def test_other_campaigns_have_no_curves() -> None:
    journal = journal_of(VALUES)
    journal = msgspec.structs.replace(journal, factors=journal.factors[:1])
    assert "Against the size" not in render_campaign(journal, campaign_effects(journal_of(VALUES)))
