"""Carries out experiments. `crescendo.run(experiment)` calls `crescendo.run.session.run`, which documents it."""

from crescendo.model.callable_package import make_callable

make_callable(__name__, "session:run")
