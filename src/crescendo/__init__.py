"""Crescendo: a performance laboratory for message-oriented middleware.

    import crescendo

    result = crescendo.run("experiments/quick/amqp10.yml", out="runs")
    assert result.passed, result.verdict

The names in __all__ are the public interface; docs/api.md describes them. Each is imported when it is first used, so
that `import crescendo` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from crescendo.api import compare, export, load_experiment
    from crescendo.model.errors import ConfigError, CrescendoError, LostError, PeerError
    from crescendo.model.experiment import Experiment
    from crescendo.model.experiment_file import experiment_from
    from crescendo.model.verdict import Check, Outcome, Verdict
    from crescendo.pipeline.compare.compare import Change, Comparison
    from crescendo.record.manifest import Manifest, State
    from crescendo.record.summary import Summary
    from crescendo.report.page import write_report as report
    from crescendo.run.analysis import Analyst
    from crescendo.run.control_access import ControlAccess
    from crescendo.run.import_session import import_recording
    from crescendo.run.interruption import Interruption
    from crescendo.run.lake_session import AnalysedRuns, analyze_all
    from crescendo.run.observer import RunObserver
    from crescendo.run.recorded_run import RecordedRun, open_recording
    from crescendo.run.result import RunResult
    from crescendo.run.session import FinishedSearch, analyze, run, search

_HOMES = {
    "crescendo.api": "compare export load_experiment",
    "crescendo.model.errors": "ConfigError CrescendoError LostError PeerError",
    "crescendo.model.experiment": "Experiment",
    "crescendo.model.experiment_file": "experiment_from",
    "crescendo.model.verdict": "Check Outcome Verdict",
    "crescendo.pipeline.compare.compare": "Change Comparison",
    "crescendo.record.manifest": "Manifest State",
    "crescendo.record.summary": "Summary",
    "crescendo.run.analysis": "Analyst",
    "crescendo.run.control_access": "ControlAccess",
    "crescendo.run.import_session": "import_recording",
    "crescendo.run.interruption": "Interruption",
    "crescendo.run.lake_session": "AnalysedRuns analyze_all",
    "crescendo.run.observer": "RunObserver",
    "crescendo.run.recorded_run": "RecordedRun open_recording",
    "crescendo.run.result": "RunResult",
    "crescendo.run.session": "FinishedSearch analyze search",
}
_CALLABLE_PACKAGES = ("report", "run")  # packages that can be called, see model/callable_package.py
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AnalysedRuns",
    "Analyst",
    "Change",
    "Check",
    "Comparison",
    "ConfigError",
    "ControlAccess",
    "CrescendoError",
    "Experiment",
    "FinishedSearch",
    "Interruption",
    "LostError",
    "Manifest",
    "Outcome",
    "PeerError",
    "RecordedRun",
    "RunObserver",
    "RunResult",
    "State",
    "Summary",
    "Verdict",
    "analyze",
    "analyze_all",
    "compare",
    "experiment_from",
    "export",
    "import_recording",
    "load_experiment",
    "open_recording",
    "report",
    "run",
    "search",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _CALLABLE_PACKAGES:
        return import_module(f"crescendo.{name}")
    if name == "__version__":
        value: Any = _installed_version()
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'crescendo' has no attribute {name!r}")
    globals()[name] = value
    return value


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # more than all else that a relay imports

    try:
        return version("crescendo-lab")
    except PackageNotFoundError:  # running from a source tree without installation
        return "0.0.0"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
