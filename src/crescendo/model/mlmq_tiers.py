"""Which stations do the tiers of an MLMQ request belong to, and how many servers has each?

Requests are recorded as `REQUEST/TIER`. The database and the workers of the brokers have servers, in which a request is
served, everything else is a delay, and in two tiers a request only waits for a server. Measures nothing.
"""

from collections.abc import Mapping
from typing import Any

from crescendo.model.experiment import Experiment

DATABASE, WORKERS, NETWORK = "database", "workers", "network"
WAITING_TIERS = ("queue wait", "pool wait")
"""Waiting for a worker, and for a connection to the database."""

THINKING_TIER = "wait for a message"
"""Nothing serves the request meanwhile: there is no message for it."""

_STATION_OF = {"database": DATABASE, "receive": WORKERS, "send": WORKERS}
_SETTINGS = {DATABASE: "connections", WORKERS: "workers"}
_DEFAULTS = {"brokers": 1, "workers": 2, "connections": 2}  # those of the system


def station_of(tier: str) -> str | None:
    """The station that serves a request in this tier; None where it only waits."""
    return None if tier in (*WAITING_TIERS, THINKING_TIER) else _STATION_OF.get(tier, NETWORK)


def servers_of(experiment: Experiment, station: str) -> int | None:
    """How many requests the station serves at a time; None if there is no limit."""
    if station not in _SETTINGS:
        return None
    settings: Mapping[str, Any] = experiment.system.settings or {}
    brokers, each = (int(settings.get(key, _DEFAULTS[key])) for key in ("brokers", _SETTINGS[station]))
    return brokers * each
