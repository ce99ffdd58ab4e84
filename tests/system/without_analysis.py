"""Does everything that `crescendo run EXPERIMENT --out DIR` does before the analysis, and nothing after.

For tests of a run in progress: they need a process that they can kill and inspect, and that has no JVM of its own.
"""

import sys
from pathlib import Path

from crescendo.cli.run import Interruption
from crescendo.model.experiment_file import load_experiment
from crescendo.run.execute import RunObserver, execute


def main(path: Path, out: Path) -> None:
    interruption = Interruption()
    observer = RunObserver(
        interrupted=lambda: interruption.asked,
        progress=lambda sentence: print(sentence, file=sys.stderr),
        watch=lambda _run: None,
        on_event=lambda _mark: None,
        prepare=lambda: None,
        await_prepared=lambda: None,
    )
    print(
        execute(load_experiment(path), out=out, command=["crescendo", "run", str(path)], observer=observer).state.value
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
