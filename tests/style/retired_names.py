"""Module names that were replaced, because an engineer of this field would not search for them.

Listed by folder, because some of these words are right elsewhere; `.` stands for every folder. A name is retired in its
folder and in all folders below, for modules and for packages.
"""

from pathlib import PurePosixPath

RETIRED = {
    ".": "ahead companion conduct desk emptiness ensemble entrance farewell flights folds glance grounds harvest "
    "inside intake lifeline meaning numbering overtime parcel parties practice sayings score settling shapes "
    "student suspicion voice",
    "calibrate": "ends null turn",
    "cli": "brokers live",
    "control": "broker conductor ending life",
    "importers": "maestro maestro_latency maestro_messages maestro_rates maestro_sheets",
    "exporters/maestro": "looks",
    "load": "channel driver gathering mlmq_line own_end protocols receiver sender sending tiers",
    "mlmq": "farm",
    "mlmq/broker": "http_face seed_names",
    "mlmq/storage": "exchanges",
    "mlmq/workloads": "company journal",
    "model": "clients",
    "pipeline": "accounts aggregates archive effects errors gaps gathering losses messages party_histogram places "
    "others_messages pulse regress remote repeats results tables",
    "pipeline/live": "mark",
    "record": "block pages parquet thrift",
    "report": "breakup looks parts tiers",
    "run": "carried facts files perform play processes",
    "systems": "accounts installations layout processes standing",
    "wire": "mlmq_batch mlmq_operations",
    "wire/mqtt": "kinds reading terms writing",
}

RETIRED_IN_TESTS = {".": f"{RETIRED['.']} bombardment feeding paper_authority virtual_orchestra"}

RIGHT = {
    # Where the word names another thing than it did.
    "control/conductor",
    "importers/formats/maestro",
    "load/engine/sender",
    "load/protocols",
    "pipeline/effects",  # of the factors of a campaign
    "pipeline/spark/errors",
    "record/encoding/pages",
    "record/encoding/parquet",
    "record/encoding/thrift",
}


def is_retired(path: str, retired: dict[str, str] = RETIRED) -> bool:
    """Whether this module or package, given without its suffix, has a name that was replaced."""
    module = PurePosixPath(path)
    words = {word for folder in module.parents for word in retired.get(str(folder), "").split()}
    return module.name in words and path not in RIGHT
