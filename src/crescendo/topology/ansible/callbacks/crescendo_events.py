"""What Ansible does, one JSON object per line on standard output, for the program that started it.

Runs inside of Ansible, so it imports nothing of Crescendo.
"""

import json
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: crescendo_events
type: stdout
short_description: results as JSON lines
description: One line per result of a task.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "crescendo_events"

    def _tell(self, outcome: str, result: Any) -> None:
        values = result._result
        reason = values.get("msg") or values.get("stderr") or values.get("reason") or ""
        line = {
            "outcome": outcome,
            "host": result._host.get_name(),
            "task": result._task.get_name().rpartition(" : ")[2],
            "changed": bool(values.get("changed")),
            "reason": "" if outcome == "ok" else str(reason),
        }
        print(json.dumps(line), flush=True)

    def v2_runner_on_ok(self, result: Any, **_: Any) -> None:
        self._tell("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False, **_: Any) -> None:
        if not ignore_errors:
            self._tell("failed", result)

    def v2_runner_on_unreachable(self, result: Any, **_: Any) -> None:
        self._tell("unreachable", result)
