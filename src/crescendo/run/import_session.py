"""How do the files of another tool become a recording?

Plans the import, which refuses wrong paths at once, then starts Spark and carries it out. Prints nothing.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from crescendo.importers.format import ImportOptions
from crescendo.importers.job import ImportSummary, plan_import, run_import
from crescendo.run.analysis import Analyst, Progress, opened_analyst

StrPath = str | os.PathLike[str]


def import_recording(
    form: str,
    sources: Sequence[StrPath],
    out: StrPath,
    *,
    options: ImportOptions | None = None,
    progress: Progress = lambda _: None,
    master: str | None = None,
    analyst: Analyst | None = None,
) -> ImportSummary:
    """Turn files or directories of another tool into a recording: `form` is a format of `crescendo import`.

    out: the recording, a new or empty directory. options: periods, the clock bound and limits for archives.
    progress: called with each step, in a few words. The other arguments are those of `analyze`.
    """
    plan = plan_import(form, [Path(source) for source in sources], Path(out))
    with opened_analyst(analyst, master) as opened:
        return run_import(plan, opened.session(progress), options or ImportOptions(), progress)
