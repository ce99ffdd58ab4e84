"""Real git repositories with handlers, for tests of the agent."""

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example",
}


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


class HandlerRepository:
    """A repository whose files are written by the test."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        directory.mkdir(parents=True)
        git(directory, "init", "--quiet", "--initial-branch=main")

    def write(self, path: str, content: str, mode: int = 0o755) -> None:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(mode)

    def commit(self) -> str:
        git(self.path, "add", "--all")
        git(self.path, "commit", "--quiet", "--allow-empty", "--message=change")
        return git(self.path, "rev-parse", "HEAD")
