"""A package with checks of its own, installed for one test: a directory with its module and its metadata."""

from pathlib import Path

MODULE = """
from crescendo.model.metrics import COUNT, Metric, Unit

SHARE = Unit(
    fits=lambda unit: not unit,
    wanted="a share, such as '<= 0.9'",
    text=lambda share: f"{share:.0%}",
    report_text=lambda share: f"{share:.1%}",
)

busiest_receiver = Metric(
    "busiest_receiver",
    SHARE,
    lambda evidence: max(peer.busy_share for peer in evidence.statistics.values() if peer.busy_share is not None),
)
unlucky = Metric("unlucky", COUNT, lambda evidence: evidence.counts.sent / 0)
lost = Metric("lost", COUNT, lambda evidence: 77.0)
not_a_metric = "busiest_receiver"
"""
ENTRY_POINTS = """
[crescendo.checks]
busiest_receiver = toy_checks:busiest_receiver
unlucky = toy_checks:unlucky
lost = toy_checks:lost
not_a_metric = toy_checks:not_a_metric
broken = toy_checks.nowhere:anything
"""


def install_check_plugins(site: Path) -> Path:
    """Put this directory on PYTHONPATH, and the package is installed."""
    metadata = site / "toy_checks-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-checks\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (site / "toy_checks.py").write_text(MODULE)
    return site
