"""Read a recording without Spark: its verdict, one table of the analysis, and every message.

python examples/read_recording.py runs/quick-amqp10-…
"""

import sys

import pyarrow.compute as pc

import crescendo


def main(run: str) -> None:
    recording = crescendo.open_recording(run)
    summary = recording.summary
    print(f"{recording.manifest.run}: {summary.verdict.outcome}, {summary.rate.sustained:,.0f} msg/s sustained")

    for row in recording.table("latency").to_pylist():
        if row["phase"] == "measure" and row["kind"] == "response" and row["scope"] == "phase":
            print(f"response p50 {row['p50']} ns, p99 {row['p99']} ns, of {row['count']:,} messages")

    # Batch by batch, so that memory does not grow with the recording.
    slow, seen = 0, 0
    for batch in recording.messages("received", columns=["intended_ns", "received_ns"]):
        response_ns = pc.subtract(batch["received_ns"], batch["intended_ns"])
        slow += pc.sum(pc.greater(response_ns, 10_000_000)).as_py() or 0
        seen += batch.num_rows
    print(f"{slow:,} of {seen:,} messages took longer than 10 ms")

    large = recording.messages("sent", columns=["seq", "size"], where=pc.field("size") > 1000).read_all()
    print(f"{large.num_rows:,} messages were larger than 1,000 bytes")


if __name__ == "__main__":
    main(sys.argv[1])
