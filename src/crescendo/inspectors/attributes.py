"""How do the attributes of a system's entity become readings and texts?

Numbers and booleans become readings, maps are flattened with dots, and everything else becomes a text; unknown
attributes are treated like known ones. Nothing is renamed, so that the system's own documentation explains every
metric. Attributes that look like secrets are left out.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from crescendo.inspectors.base import Inspection, Reading

MAX_TEXT = 4096
MAX_DEPTH = 8
_SECRET = re.compile(r"passw|secret|credential|private.?key", re.IGNORECASE)


def add_attributes(
    inspection: Inspection, entity: str, attributes: Mapping[Any, Any], prefix: str = "", depth: int = 0
) -> None:
    """Add all attributes of one entity to an inspection. Null attributes are skipped."""
    for key, value in attributes.items():
        name = f"{prefix}{key}"
        if value is None or _SECRET.search(name):
            continue
        number = number_of(value)
        if number is not None:
            inspection.readings.append(Reading(entity, name, number))
        elif isinstance(value, Mapping) and depth < MAX_DEPTH:
            add_attributes(inspection, entity, value, f"{name}.", depth + 1)
        elif not _SECRET.search(text := text_of(value)):
            inspection.texts[entity, name] = text


def number_of(value: Any) -> float | None:
    """A number or a boolean as a number; None for anything else, infinities included."""
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    return None


def text_of(value: Any) -> str:
    """Any other value as a text of bounded length."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, sort_keys=True)
    return str(text)[:MAX_TEXT]
