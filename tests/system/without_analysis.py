"""Does everything that `crescendo run EXPERIMENT --out DIR` does before the analysis, and nothing after.

For tests of a run in progress: they need a process that they can kill and inspect, and that has no JVM of its own.
"""

import sys
from pathlib import Path

import crescendo


class Steps(crescendo.RunObserver):
    def progress(self, step: str) -> None:
        print(step, file=sys.stderr)


def main(path: Path, out: Path) -> None:
    command = ["crescendo", "run", str(path)]
    with crescendo.Interruption() as interruption:
        result = crescendo.run(
            path, out=out, command=command, observer=Steps(), analyze=False, interruption=interruption
        )
    print(result.state.value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
