"""How does a run reach its peers?

By default over a control broker of its own, with a secret that only the processes of this run know. With a URL, over
that broker. With the token of a lab, the run belongs to that lab: every holder of the token can watch and control it,
and with `standing` its senders and receivers are the lab's standing peers instead of processes that the run starts.
"""

from dataclasses import dataclass

from crescendo.control.trust import Lab, NoteScope, new_lab, new_run_name
from crescendo.model.errors import ConfigError


@dataclass(frozen=True)
class ControlAccess:
    """The control plane of a run, as the user chose it."""

    url: str | None = None
    token: str | None = None
    standing: bool = False

    def __post_init__(self) -> None:
        if self.token is not None and self.url is None:
            raise ConfigError(
                "--token-file: the lab needs a control broker that all its processes know; give --control"
            )
        if self.standing and self.token is None:
            raise ConfigError(
                "--standing: standing peers accept only the lab that holds their token; give --token-file"
            )

    def __repr__(self) -> str:
        return "ControlAccess"

    @property
    def lab(self) -> Lab:
        return new_lab() if self.token is None else Lab(self.token)


def control_access(given: str | ControlAccess | None) -> ControlAccess:
    return given if isinstance(given, ControlAccess) else ControlAccess(given)


def new_run_of(lab: Lab) -> NoteScope:
    return lab.scope_of(new_run_name())
