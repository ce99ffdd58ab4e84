"""Which settings does Spark get on which master?

Values only, derived from the master's URL and the size of this machine; `session` starts Spark with them. Spark itself
reads whatever else a cluster needs (YARN's queue, Kubernetes' image, credentials of an object store) from
SPARK_CONF_DIR and HADOOP_CONF_DIR. docs/pipeline.md gives the reason for every setting.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from crescendo.model.errors import ConfigError

_LOOPBACK = "127.0.0.1"
_MASTER = re.compile(
    r"local(\[(\*|[0-9]+)(,[0-9]+)?\])?|local-cluster\[([0-9]+),([0-9]+),[0-9]+\]|spark://.+|yarn|k8s://.+"
)
_LOCAL_MASTER = re.compile(r"spark://(127\.0\.0\.1|localhost|\[::1\]):")
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",  # the heap is small and the cores are few: collector threads would only compete
    "-XX:MetaspaceSize=256m",  # Spark loads thousands of classes: no full collection while it does
    "-XX:-UsePerfData",  # no file in /tmp for every JVM
    # What Java reserves with all compilers. With the quick one alone it is 48 MB, which a session filled in two minutes
    # of small analyses ("CodeCache is full").
    "-XX:ReservedCodeCacheSize=240m",
)
_QUICK_COMPILER = ("-XX:TieredStopAtLevel=1",)
"""A short analysis runs most code a few times: profiling and optimising that costs more than it gains."""

_OPTIMISING_COMPILER = (
    # Only for code that stays hot: the loops over millions of messages.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
)
QUICK_MESSAGES = 500_000
"""Up to this number of messages the quick compiler is ahead; at a million, both take as long."""

PACKAGE = "pyspark"
"""The package whose version a recording keeps."""

JAVA_OPTIONS_VARIABLE = "CRESCENDO_JAVA_OPTIONS"
"""Further options of the driver's JVM, separated by spaces, from the environment."""

MEMORY = "2g"
"""Heap of the single JVM on a local master."""

DRIVER_MEMORY = "600m"
"""Heap of a driver on a cluster: with the JVM's other memory, its process stays below a gigabyte."""


def check_master(master: str) -> str:
    """Reject a master that Spark would not understand, before starting a JVM for it."""
    if _MASTER.fullmatch(master) is None:
        raise ConfigError(
            f"--master {master}: not a Spark master; write local[*], local-cluster[2,1,1024], spark://host:7077, yarn "
            "or k8s://https://host:6443"
        )
    return master


def in_one_process(master: str | None) -> bool:
    """Whether driver and executors are one JVM."""
    return master is None or re.fullmatch(r"local(\[.*\])?", master) is not None


def settings_for(
    master: str | None,
    *,
    cores: int,
    memory: str | None,
    home: Path,
    java_options: tuple[str, ...],
    messages: int | None = None,
) -> Mapping[str, str]:
    """Every setting, by its Spark name. `messages`: about how many will be analysed; None if nobody knows."""
    one_process = in_one_process(master)
    log4j = Path(__file__).with_name("log4j2.properties")
    quick = one_process and messages is not None and messages <= QUICK_MESSAGES
    compiler = _QUICK_COMPILER if quick else _OPTIMISING_COMPILER
    java = (
        *_JAVA_OPTIONS,
        *compiler,
        f"-Djava.io.tmpdir={home}",
        f"-Dlog4j2.configurationFile=file:{log4j}",
        *java_options,
    )
    settings = {
        "spark.app.name": "crescendo",
        "spark.master": master or f"local[{cores}]",
        "spark.driver.memory": memory or (MEMORY if one_process else DRIVER_MEMORY),
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(home),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        # Otherwise every column expression sends its stack trace to the JVM, twice, in case it fails.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Recordings use zstd, so its library is loaded anyway; another codec would load a second native library.
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.io.compression.codec": "zstd",
        # Names of experiments and runs stay strings, even when they look like numbers or dates.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # Tables are written to a hidden directory and renamed when complete, so the committer need not do it too.
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if one_process:
        # What is broadcast stays in the process, and with every scan that is the whole Hadoop configuration.
        settings |= {"spark.broadcast.compress": "false", "spark.broadcast.checksum": "false"}
    if workers := re.match(r"local-cluster\[([0-9]+),([0-9]+),", master or ""):
        cores = int(workers[1]) * int(workers[2])
    if one_process or workers:
        # Shuffles carry counts, not messages: one partition per core, and nothing to adapt.
        settings |= {"spark.sql.shuffle.partitions": str(cores), "spark.sql.adaptive.enabled": "false"}
    if on_this_machine(master):
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
        settings |= {"spark.executor.extraJavaOptions": " ".join((*_JAVA_OPTIONS, *_OPTIMISING_COMPILER))}
    return settings


def on_this_machine(master: str | None) -> bool:
    """Whether no executor on another machine has to reach the driver."""
    return master is None or master.startswith("local") or _LOCAL_MASTER.match(master) is not None
