"""How does the agent get exactly the commit that its configuration allows?

With git, into an empty directory, within limits of time and size: no hooks, no submodules, no filters, no settings of
this account or host, and links as plain files. A branch must be at an allowed commit at this moment, else it is
refused. Runs nothing of what it fetched.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crescendo.agent.configuration import AgentConfiguration
from crescendo.agent.handler_process import HandlerBounds, HandlerProcess, HandlerResult, run_to_end
from crescendo.agent.handler_source import HandlerSource, listed_files
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.urls import redact_url_text

FETCH_S = 60.0
_LISTING_BYTES = 4 * 2**20
_GIT_MEMORY_BYTES = 4 * 2**30
_GIT_PROCESSES = 64
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}")
_OPTIONS = (
    "core.hooksPath=/dev/null",
    "core.symlinks=false",
    "core.fsmonitor=false",
    "core.autocrlf=false",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.fsckObjects=true",
    "gc.auto=0",
    "credential.helper=",
)
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding\n"


@dataclass(frozen=True)
class _Git:
    program: str
    directory: Path
    bounds: HandlerBounds
    while_waiting: Callable[[], None]

    def run(self, *arguments: str) -> HandlerResult:
        options = [text for option in _OPTIONS for text in ("-c", option)]
        process = HandlerProcess(
            [self.program, *options, f"--git-dir={self.directory / 'git'}", *arguments],
            cwd=self.directory,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": str(self.directory),
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_ATTR_NOSYSTEM": "1",
                "GIT_TERMINAL_PROMPT": "0",
                "GIT_ALLOW_PROTOCOL": "file:https:http:ssh:git",
                "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
            },
            parameters="",
            bounds=self.bounds,
        )
        return run_to_end(process, self.while_waiting)

    def ask(self, *arguments: str) -> str:
        result = self.run(*arguments)
        if not result.is_good:
            raise PeerError(f"git {arguments[0]} failed: {last_output_of(result)}")
        return result.output


def fetch_source(
    configuration: AgentConfiguration,
    source: str,
    branch: str,
    directory: Path,
    while_waiting: Callable[[], None] = lambda: None,
) -> HandlerSource:
    """Check out the allowed commit into an empty directory.

    ConfigError if it is not allowed, PeerError if git fails.
    """
    allowed = configuration.commits_of(source)
    shown = redact_url_text(source)
    if branch and not (_BRANCH.fullmatch(branch) and ".." not in branch):
        raise ConfigError(f"{branch[:100]!r} is not the name of a branch or a commit")
    is_commit = _COMMIT.fullmatch(branch) is not None
    if is_commit and branch not in allowed:
        raise ConfigError(f"commit {branch} of {shown} is not one that this agent allows")
    if not branch and len(allowed) > 1:
        raise ConfigError(f"{shown}: this agent allows {len(allowed)} commits; say which as branch")
    program = shutil.which("git")
    if program is None:
        raise ConfigError("git is not installed; an agent needs it to fetch sources")
    limits = configuration.limits
    bounds = HandlerBounds(FETCH_S, _LISTING_BYTES, _GIT_MEMORY_BYTES, limits.files, _GIT_PROCESSES, 0)
    tree = directory / "files"
    tree.mkdir(parents=True, mode=0o700)
    git = _Git(program, directory, bounds, while_waiting)
    git.ask("init", "--quiet", "--template=", f"--object-format={'sha1' if len(allowed[0]) == 40 else 'sha256'}")
    (directory / "git" / "info").mkdir(exist_ok=True)
    (directory / "git" / "info" / "attributes").write_text(_ATTRIBUTES)
    wanted = branch if is_commit or branch else allowed[0]
    commit = _fetched(git, source, wanted, is_branch=bool(branch) and not is_commit)
    if commit not in allowed:
        raise ConfigError(
            f"{branch} of {shown} is at {commit}, which is not a commit that this agent allows; it was moved, or its "
            "new commit has to be reviewed and listed"
        )
    files = listed_files(git.ask("ls-tree", "-r", "-z", "--full-tree", commit))
    git.ask(f"--work-tree={tree}", "checkout", "--quiet", "--force", commit, "--", ".")
    shutil.rmtree(directory / "git", ignore_errors=True)
    return HandlerSource(source, commit, tree, files)


def _fetched(git: _Git, source: str, wanted: str, *, is_branch: bool) -> str:
    """The commit that was fetched, as git computed it from its content."""
    fetch = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
    place = "refs/heads/fetched"
    if is_branch:
        git.ask(*fetch, "--depth=1", source, f"+refs/heads/{wanted}:{place}")
        return git.ask("rev-parse", "--verify", f"{place}^{{commit}}").strip()
    if not git.run(*fetch, "--depth=1", source, f"+{wanted}:{place}").is_good:
        # A server may hand out branches only.
        git.ask(*fetch, source, "+refs/heads/*:refs/remotes/all/*")
        found = git.run("rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}")
        if not found.is_good:
            raise PeerError(f"{redact_url_text(source)} has no commit {wanted}")
        return found.output.strip()
    return git.ask("rev-parse", "--verify", f"{place}^{{commit}}").strip()


def last_output_of(result: HandlerResult) -> str:
    """The last line that a program printed, or how it ended."""
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    ended = f"ended by its limit of {result.reason}" if result.reason else f"code {result.code}"
    return redact_url_text(lines[-1][:300]) if lines and not result.reason else ended
