"""A run with the standing peers of a lab, without its analysis: EXPERIMENT OUT CONTROL-FILE TOKEN-FILE [IDLE-S]."""

import sys
from pathlib import Path

import crescendo
from crescendo.run import recording_fetch
from without_analysis import Steps


def main(path: Path, out: Path, url_file: Path, token_file: Path) -> None:
    access = crescendo.ControlAccess(url_file.read_text().strip(), token_file.read_text().strip(), standing=True)
    with crescendo.Interruption() as interruption:
        result = crescendo.run(
            path, out=out, control=access, observer=Steps(), analyze=False, interruption=interruption
        )
    print(result.state.value)


if __name__ == "__main__":
    if len(sys.argv) > 5:
        recording_fetch.IDLE_TIMEOUT_S = float(sys.argv[5])
    main(*map(Path, sys.argv[1:5]))
