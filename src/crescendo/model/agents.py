"""Which agents take part in a run?

One agent of an experiment file: where its handlers come from, and where it runs. What it may run is in the agent's own
configuration, which an experiment can name but not contain. Reads no file.
"""

from typing import Annotated

from msgspec import Meta, Struct

from crescendo.model.urls import redact_url_text

AGENT_ID_PREFIX = "agent-"


class Agent(Struct, frozen=True, forbid_unknown_fields=True):
    """An agent that the run starts with a configuration file of this host, or a standing one."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    source: Annotated[str, Meta(min_length=1, max_length=2000)]  # a git repository: URL or absolute path
    branch: Annotated[str, Meta(max_length=255)] = ""  # or commit; empty: the one commit that the agent allows
    config: str | None = None  # the configuration of an agent that the run starts
    on: Annotated[str, Meta(min_length=1, max_length=100)] | None = None  # host, name or label of a standing agent

    def __post_init__(self) -> None:
        if (self.config is None) == (self.on is None):
            raise ValueError("give either config (the file of an agent to start here) or on (a standing agent)")

    @property
    def peer_id(self) -> str:
        return f"{AGENT_ID_PREFIX}{self.name}"

    def redacted(self) -> "Agent":
        """The same agent without secrets."""
        return Agent(self.name, redact_url_text(self.source), self.branch, self.config, self.on)


def check_agents(agents: list[Agent]) -> None:
    """Reject two agents of one name."""
    names = [agent.name for agent in agents]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two agents are called {twice[0]!r}; give each agent its own name")
