"""A protocol, a table and two checks: values that say what there is, and name the functions that do the work.

They are loaded whenever names are checked, so this module imports neither drivers nor Spark.
"""

from typing import Annotated

from msgspec import Struct

from crescendo.model.metrics import COUNT, Metric, Need, table_metric
from crescendo.model.protocols import MessagingProtocol
from crescendo.model.run_evidence import RunEvidence
from crescendo.record.table_types import Int32, Table

PROTOCOL = MessagingProtocol(
    name="toy",
    scheme="toy",
    port=7070,
    driver="crescendo_toy.driver:Toy",  # the classes ToySender and ToyReceiver
    settle=("at-least-once",),
    url_options=(),
    has_topics=False,
    has_properties=False,
)


class SizeRow(Struct, frozen=True):
    """The messages of one size."""

    size: Annotated[Int32, "bytes of the payload"]
    messages: Annotated[int, "messages sent, resends included"]


TOY_SIZES = Table("toy_sizes", SizeRow, build="crescendo_toy.spark:build_sizes")


def _missing(evidence: RunEvidence) -> float | None:
    return None if evidence.counts is None else float(evidence.counts.owed - evidence.counts.delivered)


TOY_MISSING = Metric("toy_missing", COUNT, _missing, needs=Need.MESSAGES)
TOY_LARGEST = table_metric(
    "toy_largest", COUNT, "toy_sizes", lambda rows: max((row.size for row in rows), default=None)
)
