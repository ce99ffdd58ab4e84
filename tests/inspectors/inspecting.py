"""Looks, waited for and read."""

import time

from crescendo.inspectors.base import Inspection, Inspector
from crescendo.model.errors import PeerError

PATIENCE_S = 40.0


def values_of(look: Inspection) -> dict[tuple[str, str], float]:
    return {(entity, metric): value for entity, metric, value in look.readings}


def until(inspector: Inspector, expected: dict[tuple[str, str], float]) -> Inspection:
    """Look until every expected value is there: systems refresh what they say about themselves when it suits them."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        look = inspector.inspect()
        values = values_of(look)
        seen = {key: values.get(key) for key in expected}
        if seen == expected:
            return look
        assert time.monotonic() < deadline_s, f"expected {expected}, last seen {seen}"
        time.sleep(0.1)


def until_failure(inspector: Inspector) -> str:
    """Look until a look fails; the reason."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            inspector.inspect()
        except PeerError as err:
            return str(err)
        time.sleep(0.05)
    raise AssertionError("no look failed")
