"""How much CPU does the batch path save? The same messages through the relay by the batch and by the scalar path.

Unsettled, one sender and one receiver process, in one run. For other clients see `clients`.
"""

from bench.brokers import broker
from bench.engines import NO_LIMIT, through
from bench.results import compare
from crescendo.calibrate.engine_trial import TrialResult
from crescendo.load.assignment import Quota
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group

SIZE = 256
MESSAGES = {"batch": 3_000_000, "scalar": 40_000}


def main() -> None:
    rows: dict[str, tuple[TrialResult, TrialResult]] = {}
    for name, messages in MESSAGES.items():
        with broker("loopback") as relay:
            group = Group(size=PayloadSize.fixed(SIZE), rate=0, address=f"queue://{name}")
            rows[name] = through(relay.url, group, Quota(messages, NO_LIMIT), batching=name == "batch")
    print(f"{SIZE} B unsettled through the loopback relay, one sender and one receiver process")
    print("  path     messages      msg/s   send µs   recv µs   both µs   batch share   mean run")
    cost = {}
    for name, (sent, received) in rows.items():
        cost[name] = sent.cpu_us + received.cpu_us
        print(
            f"  {name:7} {sent.messages:>9,} {sent.rate:>10,.0f} {sent.cpu_us:>9.3f} {received.cpu_us:>9.3f} "
            f"{cost[name]:>9.3f} {received.batch_share:>13.1%} {received.run_length:>10.1f}"
        )
    costs = [(cost["batch"], cost["scalar"])]
    compare("relay", f"AMQP 1.0 through the relay, {SIZE} B", "µs CPU per message", "our scalar path", costs)
    print(f"  CPU per message: scalar ÷ batch = {cost['scalar'] / cost['batch']:.0f}×")


if __name__ == "__main__":
    main()
