"""How fast is one process of the load generator, in one protocol, at one size, in one role?

`python -m crescendo.calibrate.trial PROTOCOL sender|receiver PORT SIZE SECONDS TRIALS DIRECTORY` drives one connection
against a null server, several times, and prints the result of each trial as a line of JSON. Every message is recorded
as in a run; the recordings are deleted.
"""

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from crescendo.calibrate.calibration_file import ROLES, SENDER
from crescendo.calibrate.engine_trial import TrialResult, receive, send, unpaced_group
from crescendo.calibrate.null_process import TAG, TIMEOUT_S
from crescendo.calibrate.registry import calibrated_protocols
from crescendo.load.assignment import Quota
from crescendo.model.errors import CrescendoError
from crescendo.model.pacer import UNLIMITED
from crescendo.model.protocols import protocol_of
from crescendo.record.writer import Recorder


def run_trial(protocol: str, role: str, port: int, size: int, seconds: float, below: str) -> TrialResult:
    """Drive one connection to a null server on this machine for this many seconds, and record it below a directory."""
    group = unpaced_group(protocol, size)
    url = f"{protocol_of(protocol).scheme}://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(dir=below) as directory:
        recorder = Recorder(Path(directory), f"{role}-0", durable=False)
        try:
            if role == SENDER:
                return send(url, group, Quota(UNLIMITED, round(seconds * 1e9)), tag=TAG, log=recorder)
            deadline_s = time.monotonic() + TIMEOUT_S
            return receive(
                url, group, tag=TAG, log=recorder, stop=lambda done: done >= seconds or time.monotonic() > deadline_s
            )
        finally:
            recorder.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crescendo.calibrate.trial")
    parser.add_argument("protocol", choices=sorted(calibrated_protocols()))
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("port", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("trials", type=int)
    parser.add_argument("directory")
    options = parser.parse_args(arguments)
    for _ in range(options.trials):
        gc.collect()  # a trial must not pay for the garbage of an earlier one
        try:
            result = run_trial(
                options.protocol, options.role, options.port, options.size, options.seconds, options.directory
            )
        except CrescendoError as err:
            print(f"{options.role} of {options.protocol}: {err}", file=sys.stderr)
            return 1
        print(msgspec.json.encode(result).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
