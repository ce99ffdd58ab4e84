"""What do the nodes of a system, and a database beside them, prove to each other who they are with?

A secret that clients never use. It has letters and digits only, which no configuration file gives a meaning, whatever
the password contains; and it is derived from the password and the directory of the instance, because `plan` is pure.
"""

import hashlib
from pathlib import Path

from crescendo.systems.base import SystemSettings


def node_secret(settings: SystemSettings, directory: Path) -> str:
    return hashlib.sha256(f"{settings.password}\n{directory}".encode()).hexdigest()
