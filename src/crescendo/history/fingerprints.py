"""Which runs may be compared with each other?

Those with the same fingerprint: the same experiment and the same class of machine. What a regression test varies is not
part of it: the version or installation of the system, the name of the experiment, its seed. Compares no numbers.
"""

import hashlib
import json
from typing import Any

from crescendo.record.manifest import Manifest

_VARIED = ("name", "seed", "checks")
_VARIED_OF_SYSTEM = ("version", "home")
_MACHINE = ("machine", "processor", "cores")
_GIB = 2**30


def fingerprint(manifest: Manifest) -> str:
    """Sixteen hexadecimal digits of what makes runs comparable."""
    text = json.dumps(comparable_part(manifest), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def comparable_part(manifest: Manifest) -> dict[str, Any]:
    """What must be equal: the experiment without what is varied, and the class of the machine."""
    experiment = {key: value for key, value in manifest.experiment.items() if key not in _VARIED}
    if isinstance(system := experiment.get("system"), dict):
        experiment["system"] = {key: value for key, value in system.items() if key not in _VARIED_OF_SYSTEM}
    host = manifest.host
    machine = {key: host.get(key) for key in _MACHINE}
    memory = host.get("memory_bytes")
    # The kernel keeps some for itself, and not always the same amount.
    machine["memory_gib"] = round(memory / _GIB) if isinstance(memory, int | float) else None
    return {"experiment": _given(experiment), "machine": machine}


def _given(value: Any) -> Any:
    """Without what is not set: a key that a later version adds, and that nobody uses, changes no fingerprint."""
    if isinstance(value, list):
        return [_given(each) for each in value]
    if not isinstance(value, dict):
        return value
    given = {key: _given(each) for key, each in value.items()}
    return {key: each for key, each in given.items() if each is not None and each not in ({}, [])}


def machine_class(manifest: Manifest) -> str:
    """The class of the machine, as people read it."""
    machine = comparable_part(manifest)["machine"]
    units = {"processor": "{}", "cores": "{} cores", "memory_gib": "{} GiB"}
    parts = [text.format(machine[key]) for key, text in units.items() if machine.get(key)]
    return ", ".join(parts) or "unknown machine"
