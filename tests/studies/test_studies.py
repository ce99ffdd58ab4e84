"""Are published figures put next to ours point by point, and is a part that cannot run named?"""

import re
from pathlib import Path

import msgspec
import pytest

from crescendo.campaigns.campaign_loop import new_journal
from crescendo.cli.main import app
from crescendo.model.campaign import check_campaign_metric
from crescendo.model.errors import ConfigError
from crescendo.record.campaign_journal import Attempt, AttemptState, write_journal
from crescendo.report.study_page import STUDY_PAGE, STUDY_TEXT
from crescendo.run.analysis import Analyst
from crescendo.studies.published_study import STUDIES, PublishedFigure, StudyPart, read_study
from crescendo.studies.study_results import part_points
from crescendo.studies.study_session import part_campaign, run_study, study_directory

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
MS = 1e6


def test_every_study_names_its_source_and_what_differs() -> None:
    for name in STUDIES:
        study = read_study(name)
        assert study.source
        assert study.differs
        assert study.parts
        assert len({part.name for part in study.parts}) == len(study.parts)
    with pytest.raises(ConfigError, match="did you mean 'maestro'"):
        read_study("maesto")


@pytest.mark.parametrize("name", ["maestro", "mlmq-asl", "stomp-activemq"])
def test_the_short_form_of_every_part_is_a_campaign(name: str) -> None:
    for part in read_study(name).parts:
        campaign = part_campaign(part, EXPERIMENTS, repeat=2)
        assert campaign.settings.repeat == 2
        experiment = campaign.experiment(0)
        for figure in part.figures:
            for metric in figure.metrics:
                check_campaign_metric(metric)
                assert metric in campaign.settings.metrics
        if "phases.measure" in part.set:
            assert str(experiment.phases.measure) == part.set["phases.measure"]


def test_published_figures_are_those_of_the_table() -> None:
    """Two digits of the thesis and one of the report, typed from the print."""
    figures = {
        (part.name, figure.label): figure.value for part in read_study("maestro").parts for figure in part.figures
    }
    assert figures["router-latency-1m", "p99"] == 12.495 * MS
    assert figures["broker-throughput-1m", "throughput"] == 30_000
    sends = {figure.label: figure.value for figure in read_study("mlmq-asl").parts[0].figures}
    assert sends["send, client"] == 6.832 * MS
    jitter = {figure.label: figure.value for figure in read_study("amqperf").parts[0].figures}
    assert len(jitter) == 16
    assert jitter["6144 B every 10ms"] == 4708 * MS


def _part() -> StudyPart:
    return StudyPart(
        "quick/amqp10.yml", "How fast?",
        [PublishedFigure("rate", "rate", 1000.0), PublishedFigure("p99", "response_p99", "2ms", differs="a disk"),
         PublishedFigure("both per second", ["rate", "lost"], 10.0, per_second=True)],
        {"phases.measure": "4s"},
    )  # fmt: skip


def test_ours_is_the_mean_with_its_interval_beside_the_published_value() -> None:
    part = _part()
    campaign = part_campaign(part, EXPERIMENTS, repeat=3)
    values = [(900.0, 1 * MS), (1000.0, 2 * MS), (1100.0, 3 * MS)]
    attempts = [
        Attempt(0, at, AttemptState.COUNTED, "r", "pass", "", 1.0, {"rate": rate, "response_p99": p99, "lost": 20.0})
        for at, (rate, p99) in enumerate(values)
    ]
    journal = msgspec.structs.replace(new_journal(campaign), attempts=attempts)
    rate, p99, both = part_points(part, campaign, journal)
    assert (rate.published, rate.ours, rate.repeats) == (1000.0, 1000.0, 3)
    assert rate.low is not None
    assert rate.high is not None
    half = 4.302653 * 100 / 3**0.5  # Student's t with two degrees of freedom
    assert (rate.low, rate.high) == pytest.approx((1000 - half, 1000 + half), rel=1e-5)
    assert (p99.published, p99.ours, p99.differs) == (2 * MS, 2 * MS, "a disk")
    assert both.ours == pytest.approx(1020 / 4)


def test_repeats_are_those_of_the_command_or_of_the_file() -> None:
    table = read_study("amqperf").parts[0]
    own, wanted = part_campaign(table, EXPERIMENTS, None), part_campaign(table, EXPERIMENTS, 2)
    assert (own.settings.repeat, wanted.settings.repeat) == (5, 2)
    assert own.fingerprint == wanted.fingerprint  # so a study continues with more repeats
    assert part_campaign(read_study("maestro").parts[0], EXPERIMENTS, None).settings.repeat == 3


def test_a_figure_may_be_about_one_combination_of_levels(tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text(
        "experiment: {workload: {rate: 10}}\nfactors: {workload.size: [100, 200]}\nmetrics: [rate]\n"
    )
    part = StudyPart("c.yml", "?", [PublishedFigure("at 200", "rate", 5.0, {"workload.size": "200"})])
    campaign = part_campaign(part, tmp_path, repeat=1)
    attempts = [Attempt(at, 0, AttemptState.COUNTED, "r", "pass", "", 1.0, {"rate": 7.0 + at}) for at in range(2)]
    (point,) = part_points(part, campaign, msgspec.structs.replace(new_journal(campaign), attempts=attempts))
    assert (point.ours, point.repeats) == (8.0, 1)


def test_a_study_without_its_experiments_says_so_and_keeps_what_was_measured(tmp_path: Path) -> None:
    """Parts that were measured before stay; nothing is started for `--part` of another one."""
    directory = study_directory("stomp-activemq", tmp_path)
    part = read_study("stomp-activemq").parts[0]
    campaign = part_campaign(part, EXPERIMENTS, repeat=1)
    done = Attempt(0, 0, AttemptState.COUNTED, "r", "pass", "", 1.0, {"rate": 36_978.0})
    journal = msgspec.structs.replace(new_journal(campaign), attempts=[done], complete=True)
    (directory / f"{campaign.name}-campaign").mkdir(parents=True)
    write_journal(directory / f"{campaign.name}-campaign", journal)
    analyst = Analyst()
    with pytest.raises(ConfigError, match="--part other: stomp-activemq has 1a-small"):
        run_study("stomp-activemq", experiments=EXPERIMENTS, out=tmp_path, repeat=1, analyst=analyst, parts=("other",))
    (tmp_path / "some" / "stomp-study").mkdir(parents=True)
    (tmp_path / "some" / part.file).write_bytes((EXPERIMENTS / part.file).read_bytes())
    finished = run_study(
        "stomp-activemq", experiments=tmp_path / "some", out=tmp_path, repeat=1, analyst=analyst, parts=("1b-1kb",)
    )
    assert not finished.complete
    assert not finished.document.parts[0].reason
    assert all("there is no such experiment yet" in each.reason for each in finished.document.parts[1:])
    page = (directory / STUDY_PAGE).read_text(encoding="utf-8")
    assert "× 2<" in page
    text = (directory / STUDY_TEXT).read_text(encoding="utf-8")
    assert "| `stomp-study/1a-small.yml` | received | 18,489 msg/s | 36,978 msg/s | 1 | × 2 |" in text
    assert "not measured: " in text
    again = run_study(
        "stomp-activemq", experiments=EXPERIMENTS, out=tmp_path, repeat=1, analyst=analyst, parts=(part.name,)
    )
    reasons = [each.reason for each in again.document.parts]
    assert not reasons[0]
    assert all("there is no such experiment yet" in reason for reason in reasons[1:])  # as it was found before
    (directory / STUDY_PAGE).unlink()
    assert int(app(["report", str(directory)], standalone_mode=False) or 0) == 0
    assert (directory / STUDY_PAGE).is_file()


def test_campaigns_over_sizes_are_curves_on_the_page_with_ratios_to_single_systems(tmp_path: Path) -> None:
    directory = study_directory("federation", tmp_path)
    part = read_study("federation").parts[0]
    campaign = part_campaign(part, EXPERIMENTS, repeat=1)
    journal = new_journal(campaign)
    rates = {"single-artemis": 9000.0, "single-qpid-broker-j": 4000.0, "artemis-qpid-broker-j": 3000.0}
    attempts = [
        Attempt(at, 0, AttemptState.COUNTED, "r", "pass", "", 1.0, {"rate": rates.get(point.levels[0], 1.0)}, 1)
        for at, point in enumerate(journal.points)
    ]
    at = directory / f"{campaign.name}-campaign"
    at.mkdir(parents=True)
    write_journal(at, msgspec.structs.replace(journal, attempts=attempts, complete=True))
    (at / "campaign.html").touch()
    run_study(
        "federation", experiments=EXPERIMENTS, out=tmp_path, repeat=1, analyst=Analyst(), parts=("bandwidth-short",)
    )
    page = (directory / STUDY_PAGE).read_text(encoding="utf-8")
    titles = re.findall(r"<h3>bandwidth-short: (.*?)</h3>", page)
    assert titles == ["rate", "bandwidth", "total time of 10,000 messages"]
    assert "4,000 msg/s (× 1.00)" in page
    assert "3,000 msg/s (× 0.33)" in page  # of the broker that it begins with
    texts = (page, (directory / STUDY_TEXT).read_text(encoding="utf-8"))
    assert "| artemis-qpid-broker-j | 3,000 msg/s (× 0.33) |" in texts[1]
    assert all("Every run used relays. A relay is a stand-in for a router" in text for text in texts)


def test_a_dry_run_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        int(app(["study", "federation", "--dry-run", "--experiments", str(tmp_path)], standalone_mode=False) or 0) == 0
    )
    printed = capsys.readouterr().out
    assert printed.count("there is no such experiment yet") == 5
    assert "STUDY federation" in printed
