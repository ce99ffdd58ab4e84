"""What is one process of the load generator capable of, in one protocol, at one size, in one role?

`python -m crescendo.calibrate.trial PROTOCOL sender|receiver PORT SIZE SECONDS TURNS` drives one connection against a
null end, several times, and prints the effort of each turn as a line of JSON. Every message is recorded, because in a
run it would be; the recordings are thrown away.
"""

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from crescendo.calibrate.engine import Effort, receive, send, unbounded
from crescendo.calibrate.null_process import PATIENCE_S, TAG
from crescendo.calibrate.null_servers import ENDS
from crescendo.calibrate.store import ROLES, SENDER
from crescendo.load.assignment import Quota
from crescendo.model.errors import CrescendoError
from crescendo.model.pacer import UNLIMITED
from crescendo.model.workload import PROTOCOLS
from crescendo.record.writer import Recorder


def run_trial(protocol: str, role: str, port: int, size: int, seconds: float) -> Effort:
    """One connection to a null end on this machine, for so long."""
    group = unbounded(protocol, size)
    url = f"{PROTOCOLS[protocol]}://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="crescendo-calibrate-") as directory:
        recorder = Recorder(Path(directory), f"{role}-0")
        try:
            if role == SENDER:
                return send(url, group, Quota(UNLIMITED, round(seconds * 1e9)), tag=TAG, log=recorder)
            give_up = time.monotonic() + PATIENCE_S
            return receive(
                url, group, tag=TAG, log=recorder, stop=lambda done: done >= seconds or time.monotonic() > give_up
            )
        finally:
            recorder.close()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crescendo.calibrate.trial")
    parser.add_argument("protocol", choices=sorted(ENDS))
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("port", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("turns", type=int)
    given = parser.parse_args(words)
    for _ in range(given.turns):
        gc.collect()  # what an earlier turn left behind is not this one's to clear away
        try:
            effort = run_trial(given.protocol, given.role, given.port, given.size, given.seconds)
        except CrescendoError as err:
            print(f"{given.role} of {given.protocol}: {err}", file=sys.stderr)
            return 1
        print(msgspec.json.encode(effort).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
