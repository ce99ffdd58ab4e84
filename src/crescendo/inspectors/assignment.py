"""What is one inspector asked to do?

The payload of its SET note: everything an inspector process needs to know, checked when it arrives.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from crescendo.model.errors import ConfigError


class Assignment(Struct, frozen=True):
    """One inspector's share of a run."""

    peer: str
    run_dir: str
    kind: str
    every_ns: Annotated[int, Meta(gt=0)]
    endpoints: dict[str, str]
    pid: int | None = None

    def to_payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = msgspec.to_builtins(self)
        return payload


def read_assignment(payload: dict[str, Any]) -> Assignment:
    try:
        return msgspec.convert(payload, Assignment)
    except msgspec.ValidationError as err:
        raise ConfigError(f"an assignment that cannot be read: {err}") from err
