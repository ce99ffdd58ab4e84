"""How does a process of its own watch a run in progress?

Spark is opened small, so that the run keeps the other cores. The path of the recording is given at once, or read from
standard input when the run that starts the watcher has one. Prints only the word that such a run waits for.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from crescendo.pipeline.live.snapshot import Snapshot
from crescendo.pipeline.live.watcher_process import FROM_STDIN, READY
from crescendo.record.manifest import read_manifest

View = AbstractContextManager[Callable[[Snapshot], None]]
Follow = Callable[[View], None]

_CORES = 1  # leave the others to the run
_JAVA = ("-XX:TieredStopAtLevel=1",)  # the C1 compiler takes a third less CPU from the run, and is fast enough


@contextmanager
def live_watch(run: str, *, period_ns: int, late_after_ns: int) -> Iterator[Follow]:
    """Open Spark. What this yields shows the run in a view, until the run has ended or on Ctrl-C."""
    if run != FROM_STDIN:
        read_manifest(Path(run))  # reject a directory that is not a recording before Spark starts
    from crescendo.pipeline.live.warm_up import warm_up
    from crescendo.pipeline.live.watch import watch
    from crescendo.pipeline.spark.java import use_java
    from crescendo.pipeline.spark.session import close_session, open_session
    from crescendo.run.interruption import Interruption

    use_java()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    spark = open_session(cores=_CORES, memory="1g", java_options=_JAVA)

    def follow(view: View) -> None:
        run_dir = run
        if run == FROM_STDIN:
            warm_up(spark)
            print(READY, flush=True)
            run_dir = sys.stdin.readline().strip()
            if not run_dir:
                return  # the run was cancelled
        with Interruption() as interruption, view as show:  # after Spark, which installs its own handler
            watch(
                Path(run_dir),
                spark,
                show,
                period_ns=period_ns,
                late_after_ns=late_after_ns,
                stop_requested=lambda: interruption.asked,
            )

    try:
        yield follow
    finally:
        close_session(spark)
