"""How does the server ask a run process for another rate?

By a file in the directory of the job, and the answer is a file too: so it does not matter whether the server was
restarted since the run began. Checks the number; whether it can be changed is the conductor's answer.
"""

import secrets
import time
from typing import Annotated

from msgspec import Meta, Struct

from crescendo.model.errors import ConfigError, LostError
from crescendo.record.documents import read_or_none, write_document
from crescendo.web.jobs import JobFiles, JobState

REQUESTS, ANSWERS = "requests", "answers"
ANSWER_S = 30.0
_POLL_S = 0.1


class RateRequest(Struct, frozen=True):
    """Messages per second of each sending connection from now on."""

    rate: Annotated[float, Meta(gt=0, le=1e9)]


class RateAnswer(Struct, frozen=True):
    """Why it was not changed; empty if it was."""

    problem: str


def ask_for_rate(files: JobFiles, rate: float) -> None:
    """Change the rate of a running job, and wait for the answer."""
    if not 0 < rate <= 1e9:
        raise ConfigError(f"rate {rate:g}: give the messages per second of each connection, more than 0")
    if files.state is not JobState.RUNNING or not (files.directory / REQUESTS).is_dir():
        raise ConfigError("this run is not under way, so its rate cannot be changed")
    name = f"{time.time_ns()}-{secrets.token_hex(4)}.json"
    write_document(files.directory / REQUESTS / name, RateRequest(rate), mode=0o600)
    deadline_s = time.monotonic() + ANSWER_S
    while (answer := read_or_none(files.directory / ANSWERS / name, RateAnswer)) is None:
        if time.monotonic() > deadline_s or files.state is not JobState.RUNNING:
            raise LostError("the run did not answer; it may have ended meanwhile")
        time.sleep(_POLL_S)
    if answer.problem:
        raise ConfigError(answer.problem)
