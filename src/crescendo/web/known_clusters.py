"""On which clusters may a browser start runs?

On those whose files the owner named when starting the server. A cluster file names commands of this machine and options
of ssh, so a browser chooses among them by name and can neither write nor upload one. Connects to nothing.
"""

from collections.abc import Sequence
from pathlib import Path

from crescendo.cluster.cluster_file import ClusterHost, ClusterPlan, read_hosts, read_plan
from crescendo.cluster.cluster_lifecycle import ClusterAccess
from crescendo.control.token_file import lab_of_file
from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError
from crescendo.model.secret_file import read_secret_file
from crescendo.web.web_directory import NAME, NotFoundError

HERE = ""
"""The name of no cluster: peers run on this machine."""


class KnownClusters:
    """The clusters of one server, by the names of their files."""

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self._paths: dict[str, Path] = {}
        for path in paths:
            name = path.stem
            if NAME.fullmatch(name) is None or name in self._paths:
                raise ConfigError(
                    f"--cluster {path}: its name must be another one, of letters, digits, '.', '_' and '-'"
                )
            lab_of(read_plan(path))
            self._paths[name] = path.resolve()

    @property
    def names(self) -> list[str]:
        return sorted(self._paths)

    def path(self, name: str) -> Path:
        """The file of a cluster."""
        if name not in self._paths:
            raise NotFoundError(
                f"no cluster is called {name[:80]!r}; this server knows {', '.join(self.names) or 'none'}; start it "
                "with --cluster FILE"
            )
        return self._paths[name]


def lab_of(plan: ClusterPlan) -> Lab:
    return lab_of_file("token_file", _complete(plan)[1])


def access_of(plan: ClusterPlan) -> ClusterAccess:
    """The control broker and the lab of a cluster; a broker that the cluster itself starts may have no URL yet."""
    file = _complete(plan)[0]
    url = read_secret_file(f"control_file {file}", file) if file.exists() else ""
    return ClusterAccess(url, lab_of(plan), file)


def _complete(plan: ClusterPlan) -> tuple[Path, Path]:
    """The files of the control broker and of the token, which an inventory alone does not name."""
    if plan.control_file is None or plan.token_file is None:
        raise ConfigError(f"--cluster {plan.source}: it must be a cluster file that names control_file and token_file")
    return plan.control_file, plan.token_file


def hosts_of(plan: ClusterPlan) -> list[ClusterHost]:
    return read_hosts(plan.inventory, lab_of(plan).scope.name)
