"""Run the same load on two brokers, one after the other, and compare them.

    python examples/compare_two_brokers.py [OUT]

The relay of Crescendo speaks AMQP 1.0, MLMQ its own protocol, so the load is the same but for the protocol. Give the
brokers of your choice in BROKERS; `crescendo system list` shows which ones can be started.
"""

import sys
from typing import Any

import crescendo

BROKERS: dict[str, dict[str, Any]] = {
    "loopback": {"protocol": "amqp10", "system": {"kind": "loopback"}},
    "mlmq": {"protocol": "mlmq", "system": {"kind": "mlmq", "settings": {"brokers": 1}}},
}


def experiment(protocol: str, system: dict[str, Any]) -> crescendo.Experiment:
    return crescendo.experiment_from(
        {
            "name": "two-brokers",
            "system": system,
            "workload": {"protocol": protocol, "senders": 1, "receivers": 1, "rate": 200, "size": 256},
            "phases": {"warmup": "500ms", "measure": "2500ms", "drain": "10s"},
            "checks": {"lost": 0},
        }
    )


def main(out: str) -> crescendo.Comparison:
    with crescendo.Analyst() as analyst:  # one Spark for both runs
        results = {
            name: crescendo.run(experiment(**chosen), out=f"{out}/{name}", analyst=analyst, report=False)
            for name, chosen in BROKERS.items()
        }
    first, second = results
    comparison = crescendo.compare(results[first], results[second], threshold=0.1)
    for metric in comparison.metrics:
        print(f"{metric.metric:14} {metric.baseline.value!s:>22} {metric.run.value!s:>22}  {metric.outcome}")
    print(f"{second} against {first}: {comparison.outcome}")
    return comparison


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs")
