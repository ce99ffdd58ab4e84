"""Which files does an experiment read, and what follows from them?

The lines that a group sends, and the arrivals that a profile replays. An experiment is a value and building one reads
nothing, so that the experiment of a recording can be built where its files are not. The files are checked when an
experiment file is loaded, and before a run. Copies nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.payload import PayloadSize
from crescendo.model.profile import Replay
from crescendo.model.workload import Group


def check_inputs(experiment: Experiment, source: str) -> None:
    """Read every file that the experiment names, and reject what cannot be read or sent."""
    for group in experiment.workload:
        with _located(f"{source}: workload.{group.name}"):
            group.check_file()
    if isinstance(experiment.profile, Replay):
        with _located(f"{source}: profile"):
            experiment.profile.trace()


def derived_values(experiment: Experiment) -> dict[str, dict[str, int]]:
    """File -> what the run takes from it."""
    derived: dict[str, dict[str, int]] = {}
    for group in experiment.workload:
        if (file := _payload_file(group)) is not None:
            lengths = [len(line) for line in group.size.lines]
            derived.setdefault(file, {}).update(
                lines=len(lengths), shortest_bytes=min(lengths), longest_bytes=max(lengths), line_bytes=sum(lengths)
            )
    if isinstance(experiment.profile, Replay):
        trace = experiment.profile.trace()
        derived.setdefault(experiment.profile.file, {}).update(arrivals=trace.messages, span_ns=trace.span_ns)
    return derived


def input_files(experiment: Experiment) -> list[str]:
    """Every file that the experiment reads, once, as it names them."""
    named = [file for group in experiment.workload if (file := _payload_file(group)) is not None]
    if isinstance(experiment.profile, Replay):
        named.append(experiment.profile.file)
    return list(dict.fromkeys(named))


def with_inputs_at(experiment: Experiment, places: Mapping[str, str]) -> Experiment:
    """The same experiment, which reads copies of its files."""

    def moved(group: Group) -> Group:
        place = places.get(group.size.file or "")
        return group if place is None else msgspec.structs.replace(group, size=PayloadSize.parse({"file": place}))

    profile = experiment.profile
    if isinstance(profile, Replay):
        profile = msgspec.structs.replace(profile, file=places.get(profile.file, profile.file))
    return msgspec.structs.replace(
        experiment, workload=[moved(group) for group in experiment.workload], profile=profile
    )


def _payload_file(group: Group) -> str | None:
    return group.size.file if group.senders else None


@contextmanager
def _located(place: str) -> Iterator[None]:
    """Turn the ValueError of a value into a ConfigError that names its place in the experiment file."""
    try:
        yield
    except ValueError as err:
        raise ConfigError(f"{place}: {err}") from err
