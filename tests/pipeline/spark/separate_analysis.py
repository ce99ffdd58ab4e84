"""An analysis in its own process: python separate_analysis.py MASTER RUN. Prints the memory of its driver as JSON."""

import json
import sys
from pathlib import Path

import psutil

from crescendo.pipeline.job import analyze
from crescendo.pipeline.spark.java import use_java
from crescendo.pipeline.spark.session import close_session, open_session


def peak_bytes(process: psutil.Process) -> int:
    """The peak resident memory of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def main(master: str, run: str) -> None:
    use_java()
    spark = open_session(master)
    try:
        analyze(run if run.startswith("file:") else Path(run), spark, lambda _: None, full=True)
        me = psutil.Process()
        jvm = next(child for child in me.children() if child.name() == "java")
        print(json.dumps({"python_bytes": peak_bytes(me), "jvm_bytes": peak_bytes(jvm)}))
    finally:
        close_session(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
