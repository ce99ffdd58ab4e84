"""On which machine, and with which software, did this run take place? Reads; changes nothing."""

import importlib.metadata
import os
import platform
import socket
import time
from typing import Any

import psutil

from crescendo import __version__
from crescendo.pipeline.spark.settings import PACKAGE as SPARK_PACKAGE
from crescendo.record.manifest import Clock

_PACKAGES = ("numpy", "pyarrow", "msgspec", SPARK_PACKAGE, "paho-mqtt", "amqtt")


def versions() -> dict[str, str]:
    found = {"crescendo": __version__, "python": platform.python_version()}
    found.update({name: importlib.metadata.version(name) for name in _PACKAGES})
    return found


def host() -> dict[str, Any]:
    return {
        "name": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": round(os.getloadavg()[0], 2),
    }


def clock() -> Clock:
    """This host's clock. It is the conductor's own, so its offset is 0."""
    return Clock(host=socket.gethostname(), realtime_offset_ns=time.time_ns() - time.monotonic_ns())


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()
