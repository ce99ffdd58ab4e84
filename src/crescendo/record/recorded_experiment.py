"""What was the experiment of a recording, and at which rate did it offer messages?

From the manifest alone: the files that the experiment names are not read, because a recording is analysed where they
do not exist, or where somebody else has put a trap in their place.
"""

import math
from collections.abc import Collection

from crescendo.model.arrays import Floats
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import recorded_experiment
from crescendo.model.profile import Replay
from crescendo.model.schedule import messages_due, offered
from crescendo.record.manifest import MANIFEST, Manifest


def experiment_of(manifest: Manifest) -> Experiment:
    try:
        return recorded_experiment(manifest.experiment, f"{MANIFEST}: experiment")
    except ConfigError as err:
        raise ConfigError(f"{err}; the recording was made by another version, or its manifest was changed") from err


def offered_rate(manifest: Manifest) -> float:
    """Messages per second due in the measure phase, over all connections; 0 when unbounded or unknown."""
    if manifest.offered_per_s is not None:
        return manifest.offered_per_s
    experiment = experiment_of(manifest)
    # An older recording does not say what followed from its trace, and the trace is not part of it.
    return 0.0 if isinstance(experiment.profile, Replay) else offered(experiment)


def offered_by(manifest: Manifest, senders: Collection[int]) -> float:
    """The same for some of the senders; 0 if it is unknown, because rates were changed during the run."""
    experiment = experiment_of(manifest)
    if isinstance(experiment.profile, Replay):
        # Every sender replays the whole trace.
        count = sum(group.senders for group in experiment.workload)
        return offered_rate(manifest) * len(senders) / count if count else 0.0
    planned, carried_out = offered(experiment), offered_rate(manifest)
    return offered(experiment, senders=senders) if math.isclose(planned, carried_out, rel_tol=1e-6) else 0.0


def offered_messages(manifest: Manifest, elapsed_s: Floats) -> Floats | None:
    """How many messages were due by each time since the start, over all connections; None when unbounded or unknown.

    Of a replayed trace only the mean rate is known.
    """
    mean = offered_rate(manifest)
    if not mean:
        return None
    experiment = experiment_of(manifest)
    return mean * elapsed_s if isinstance(experiment.profile, Replay) else messages_due(experiment, elapsed_s * 1e9)
