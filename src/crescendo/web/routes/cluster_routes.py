"""Clusters that runs can use: which hosts and peers each has, whether they answer, and taking them down.

Peers of a cluster stay up after a run, so that the next one starts sooner; `down` removes them and what was installed.
"""

from typing import Any

from fastapi import APIRouter, Request

from crescendo.cluster.cluster_file import read_plan
from crescendo.cluster.cluster_lifecycle import look_at, take_down
from crescendo.model.errors import ConfigError
from crescendo.web.known_clusters import access_of, hosts_of, lab_of
from crescendo.web.page_routes import action, page, services_of

ROUTES = APIRouter(tags=["clusters"])


@page(ROUTES, "/clusters", "clusters.html.j2")
def clusters(request: Request) -> dict[str, Any]:
    known = services_of(request).queue.clusters
    return {"clusters": [_described(request, name) for name in known.names]}


@action(ROUTES, "POST", "/api/clusters/{name}/look")
def look(request: Request, name: str) -> dict[str, Any]:
    """Ask every host which peers run there, and every peer whether it answers."""
    plan = read_plan(services_of(request).queue.clusters.path(name))
    states, answering = look_at(plan, access_of(plan))
    answers = {peer.identity.id: peer for peer in answering}
    rows = []
    for state in states:
        for peer in state.host.peers:
            answer = answers.get(peer.id)
            answered = "not running" if answer is None else answer.state
            rows.append({"peer": peer.id, "host": state.host.name, "state": state.fault or answered})
    return {"message": ", ".join(f"{row['peer']}: {row['state']}" for row in rows), "peers": rows}


@action(ROUTES, "POST", "/api/clusters/{name}/down")
def down(request: Request, name: str) -> dict[str, Any]:
    """End every peer of a cluster and remove what was installed there."""
    services = services_of(request)
    path = services.queue.clusters.path(name)
    if any(files.claimed and files.job.cluster == name for files in services.queue.jobs.unfinished()):
        raise ConfigError(f"{name}: a run uses it; stop that first")
    plan = read_plan(path)
    ended = take_down(plan, lab_of(plan), lambda _: None, plan.control_file)
    return {"message": f"{ended} peer(s) ended, nothing is left"}


def _described(request: Request, name: str) -> dict[str, Any]:
    try:
        hosts = hosts_of(read_plan(services_of(request).queue.clusters.path(name)))
    except ConfigError as err:
        return {"name": name, "hosts": [], "problem": str(err)}
    return {
        "name": name,
        "hosts": [{"name": host.name, "peers": [peer.id for peer in host.peers]} for host in hosts],
        "problem": "",
    }
