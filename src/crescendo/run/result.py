"""What is the result of a run? Values and paths; opens nothing until it is asked to."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crescendo.model.verdict import Outcome, Verdict
from crescendo.record.manifest import State
from crescendo.record.summary import Summary

if TYPE_CHECKING:
    from crescendo.run.recorded_run import RecordedRun


@dataclass(frozen=True)
class RunResult(os.PathLike[str]):
    """A finished run. Wherever a run is expected as a path, this can be given."""

    run_dir: Path
    state: State  # how the recording ended: sealed, interrupted or incomplete
    reason: str = ""  # why it is not sealed
    summary: Summary | None = None  # None when the run was not analysed
    report: Path | None = None  # the HTML page, if one was written

    @property
    def verdict(self) -> Verdict | None:
        """Outcome, checks and reasons; None when the run was not analysed."""
        return None if self.summary is None else self.summary.verdict

    @property
    def passed(self) -> bool:
        """Whether every check passed on sound evidence. A run without a verdict has not passed."""
        return self.verdict is not None and self.verdict.outcome is Outcome.PASS

    @property
    def recording(self) -> "RecordedRun":
        """Its manifest, tables and messages."""
        from crescendo.run.recorded_run import open_recording

        return open_recording(self.run_dir)

    def __fspath__(self) -> str:
        return str(self.run_dir)
