"""What is one client process assigned?

The payload of its SET note: everything it needs to know, validated on arrival. Clients are numbered across all groups;
the number determines a client's broker and its connections in the recording.
"""

from collections.abc import Iterator
from typing import Any

from crescendo.control.notes import NotePayload
from crescendo.mlmq.workloads.actor import ClientIdentity
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import to_document


class WorkloadAssignment(NotePayload, frozen=True):
    """The clients of one process."""

    tag: int
    brokers: list[str]
    experiment: dict[str, Any]
    process: int
    first_sender: int  # the connection numbers of client 0 in the recording; the others follow
    first_receiver: int
    durable: bool = True  # whether the recording is synced to disk


def workload_assignment(
    tag: int, brokers: list[str], experiment: Experiment, process: int, first: tuple[int, int]
) -> WorkloadAssignment:
    return WorkloadAssignment(tag, brokers, to_document(experiment), process, *first)


def client_identities(assignment: WorkloadAssignment, experiment: Experiment) -> Iterator[ClientIdentity]:
    """The clients of this process."""
    before = 0
    for group in experiment.clients:
        for index in group.share(assignment.process, experiment.peers.clients):
            number = before + index
            sender, receiver = assignment.first_sender + number, assignment.first_receiver + number
            yield ClientIdentity(group, index, sender, receiver, number % len(assignment.brokers))
        before += group.count
