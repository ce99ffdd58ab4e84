"""What does the page of a queueing model show? Measured runs next to predictions, in nanoseconds. Computes nothing."""

from msgspec import Struct


class ModelStation(Struct, frozen=True):
    """One station: the time that a request needs there, and its servers; without servers it is a delay."""

    name: str
    demand_ns: float
    servers: int | None


class ModelRow(Struct, frozen=True):
    """One run: what was measured, what the model says, and what it says after the change."""

    run: str
    clients: int
    throughput: float
    response_ns: float
    predicted_throughput: float
    predicted_response_ns: float
    changed_throughput: float | None
    changed_response_ns: float | None
    in_system: float
    utilization: dict[str, float]
    bottleneck: str
    most_throughput: float
    waited_ns: float
    open_wait_ns: float | None
    open_wait_general_ns: float | None


class ModelDocument(Struct, frozen=True):
    """A model and its runs, by the number of clients."""

    stations: list[ModelStation]
    think_ns: float
    base: str  # the run that the demands come from
    changes: list[str]
    rows: list[ModelRow]
