"""Writes reports. `crescendo.report(run)` calls `crescendo.report.page.write_report`, which documents it."""

from crescendo.model.callable_package import make_callable

make_callable(__name__, "page:write_report")
