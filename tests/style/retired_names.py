"""Module names that were replaced, because an engineer of this field would not search for them.

Listed by folder, because some of these words are right elsewhere; `*` stands for every folder.
"""

RETIRED = {
    "*": "ahead companion conduct desk emptiness ensemble entrance farewell flights folds glance grounds harvest "
    "inside intake lifeline meaning numbering overtime parcel parties practice sayings score settling shapes "
    "student suspicion voice",
    "calibrate": "ends null turn",
    "cli": "brokers live",
    "control": "broker conductor ending life",
    "importers": "maestro maestro_latency maestro_messages maestro_rates maestro_sheets",
    "exporters/maestro": "looks",
    "load": "channel driver gathering mlmq_line protocols receiver sender sending tiers",
    "mlmq": "farm",
    "mlmq/broker": "http_face seed_names",
    "mlmq/storage": "exchanges",
    "mlmq/workloads": "company journal",
    "model": "clients",
    "pipeline": "accounts aggregates archive effects errors gaps gathering losses messages party_histogram places "
    "pulse regress remote repeats results tables",
    "pipeline/live": "mark",
    "record": "block pages parquet thrift",
    "report": "breakup looks parts tiers",
    "run": "carried facts files perform play processes",
    "systems": "accounts installations layout processes standing",
    "wire": "mlmq_batch mlmq_operations",
    "wire/mqtt": "kinds reading terms writing",
    "tests": "bombardment feeding paper_authority virtual_orchestra",
}


def retired_in(folder: str) -> frozenset[str]:
    """Names that a module in this folder must not have."""
    return frozenset(f"{RETIRED['*']} {RETIRED.get(folder, '')}".split())
