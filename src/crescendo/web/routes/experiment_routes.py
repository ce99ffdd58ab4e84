"""Pages and changes of experiments: list, define by form or as YAML, clone, archive."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from crescendo.inspectors.registry import inspector_names
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_schema import experiment_schema
from crescendo.model.protocols import known_protocols
from crescendo.record.manifest import Manifest
from crescendo.report.sections.subject import subject
from crescendo.systems.registry import all_kinds
from crescendo.systems.settings import protocols_of
from crescendo.web.experiment_form import ExperimentForm, LoadFields, form_of, text_of
from crescendo.web.experiment_store import MAX_TEXT_CHARS, StoredExperiment, shipped_experiments
from crescendo.web.page_routes import action, page, services_of, session_of
from crescendo.web.routes.job_routes import job_summaries
from crescendo.web.web_access import Role

ROUTES = APIRouter(tags=["experiments"])


class ExperimentBody(BaseModel):
    """An experiment, either as the text of its file or as a form."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, max_length=MAX_TEXT_CHARS)
    form: ExperimentForm | None = None

    @property
    def as_text(self) -> str:
        if (self.text is None) == (self.form is None):
            raise ConfigError("give either text or form")
        return self.text if self.text is not None else text_of(self.form or ExperimentForm())


class ArchiveBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    archived: bool = True


@page(ROUTES, "/experiments", "experiments.html.j2")
def experiments(request: Request, archived: bool = False) -> dict[str, Any]:
    services = services_of(request)
    strips = services.index.strips()
    return {
        "archived": archived,
        "experiments": [
            {
                "name": one.name,
                "about": _about(request, one),
                "strip": _strip(strips.get(one.name, [])),
                "last": next(iter(reversed(strips.get(one.name, []))), None),
            }
            for one in services.experiments.all(archived=archived)
        ],
        "shipped": [
            {"id": one.id, "folder": one.folder, "name": one.name, "about": one.about} for one in shipped_experiments()
        ],
        "jobs": job_summaries(request, unfinished=True),
        "clusters": services.queue.clusters.names,
    }


@page(ROUTES, "/experiments/new", "experiment.html.j2", Role.OPERATOR)
def new_experiment(request: Request) -> dict[str, Any]:
    form = ExperimentForm(name=_free_name(request))
    clusters = services_of(request).queue.clusters.names
    nothing = {"name": "", "archived": False, "strip": [], "runs": [], "clusters": clusters}
    return _editor(form_of(text_of(form)), text_of(form)) | nothing


@page(ROUTES, "/experiments/{name}", "experiment.html.j2")
def experiment(request: Request, name: str) -> dict[str, Any]:
    services = services_of(request)
    stored = services.experiments.get(name)
    text = _shown_text(request, stored)
    return _editor(form_of(text), text) | {
        "name": stored.name,
        "archived": stored.archived,
        "strip": _strip(services.index.strips().get(name, [])),
        "runs": services.index.runs(experiment=name, limit=50),
        "clusters": services.queue.clusters.names,
    }


@action(ROUTES, "GET", "/api/schema", Role.VIEWER)
def schema(request: Request) -> dict[str, Any]:
    """The JSON Schema of the experiment file."""
    return experiment_schema()


@action(ROUTES, "POST", "/api/experiments/check")
def check_experiment(request: Request, body: ExperimentBody) -> dict[str, Any]:
    """Check an experiment without keeping it."""
    text = body.as_text
    found = services_of(request).experiments.check(text)
    return {"name": found.name, "about": _sentence(found), "text": text, "form": _form(form_of(text))}


@action(ROUTES, "POST", "/api/experiments")
def add_experiment(request: Request, body: ExperimentBody) -> dict[str, Any]:
    """Keep a new experiment."""
    name = services_of(request).experiments.save(body.as_text)
    return {"name": name, "location": f"/experiments/{name}"}


@action(ROUTES, "PUT", "/api/experiments/{name}")
def change_experiment(request: Request, name: str, body: ExperimentBody) -> dict[str, Any]:
    """Replace an experiment; its name may change."""
    store = services_of(request).experiments
    if store.get(name).archived:
        raise ConfigError(f"{name} is archived; bring it back first")
    saved = store.save(body.as_text, replacing=name)
    return {"name": saved, "location": f"/experiments/{saved}"}


@action(ROUTES, "POST", "/api/experiments/{name}/clone")
def clone_experiment(request: Request, name: str) -> dict[str, Any]:
    """Copy an experiment, or one that comes with Crescendo."""
    copy = services_of(request).experiments.clone(name)
    return {"name": copy, "location": f"/experiments/{copy}"}


@action(ROUTES, "POST", "/api/experiments/{name}/archive")
def archive_experiment(request: Request, name: str, body: ArchiveBody) -> dict[str, Any]:
    """Put an experiment away, or bring it back. Its runs stay."""
    services_of(request).experiments.set_archived(name, body.archived)
    return {"location": "/experiments" if body.archived else f"/experiments/{name}"}


def _editor(form: ExperimentForm | None, text: str) -> dict[str, Any]:
    protocols = known_protocols()
    spoken = {
        kind.name: [name for name, one in protocols.items() if one.endpoint in protocols_of(kind)]
        for kind in all_kinds()
    }
    return {
        "text": text,
        "form": _form(form),
        "group": LoadFields(protocol=form.protocol if form else "mlmq").model_dump(),
        "systems": [
            {"name": kind.name, "summary": kind.summary, "protocols": spoken[kind.name]} for kind in all_kinds()
        ],
        "protocols": [{"name": one.name, "title": one.title} for one in protocols.values()],
        "inspectors": inspector_names(),
    }


def _form(form: ExperimentForm | None) -> dict[str, Any] | None:
    return None if form is None else form.model_dump()


def _strip(runs: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"run": run["name"], "outcome": run["outcome"] or run["state"]} for run in runs]


def _about(request: Request, stored: StoredExperiment) -> str:
    try:
        return _sentence(services_of(request).experiments.check(stored.text, f"{stored.name}.yml"))
    except ConfigError as err:
        return f"cannot be run: {err}"


def _sentence(found: Experiment) -> str:
    system = {"topology": found.topology, "nodes": ()} if found.topology is not None else {"kind": found.system.kind}
    return subject(Manifest(found.name, 0, {}, [], 0, system=system), found).sentence


def _shown_text(request: Request, stored: StoredExperiment) -> str:
    """A viewer does not see passwords."""
    session = session_of(request)
    if session is not None and session.rights >= Role.OPERATOR:
        return stored.text
    return services_of(request).experiments.redacted_text(stored)


def _free_name(request: Request) -> str:
    taken = {one.name for archived in (False, True) for one in services_of(request).experiments.all(archived=archived)}
    return next(name for number in range(1, 10_000) if (name := f"experiment-{number}") not in taken)
