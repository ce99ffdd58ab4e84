"""Inspections, awaited and read."""

import time

from crescendo.inspectors.base import Inspection, Inspector
from crescendo.model.errors import PeerError

TIMEOUT_S = 40.0


def values_of(inspection: Inspection) -> dict[tuple[str, str], float]:
    return {(entity, metric): value for entity, metric, value in inspection.readings}


def inspect_until(inspector: Inspector, expected: dict[tuple[str, str], float]) -> Inspection:
    """Inspect until every expected value is there: systems refresh their own values at their own pace."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        inspection = inspector.inspect()
        values = values_of(inspection)
        seen = {key: values.get(key) for key in expected}
        if seen == expected:
            return inspection
        assert time.monotonic() < deadline_s, f"expected {expected}, last seen {seen}"
        time.sleep(0.1)


def inspect_until_failure(inspector: Inspector) -> str:
    """Inspect until an inspection fails; returns the reason."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            inspector.inspect()
        except PeerError as err:
            return str(err)
        time.sleep(0.05)
    raise AssertionError("no inspection failed")
