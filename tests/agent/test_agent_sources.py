"""Only allowed commits of listed repositories are checked out, and only files of those commits are run."""

import os
from pathlib import Path

import pytest

from crescendo.agent.configuration import AgentConfiguration, AllowedSource, is_within, read_configuration
from crescendo.agent.fetch_source import fetch_source
from crescendo.agent.handler_source import HandlerSource, blob_id
from crescendo.model.errors import ConfigError, CrescendoError, PeerError
from handler_repository import HandlerRepository, git


@pytest.fixture
def repository(tmp_path: Path) -> HandlerRepository:
    made = HandlerRepository(tmp_path / "repositories" / "handlers")
    made.write("user_command/restart.sh", "#!/bin/sh\nexit 0\n")
    return made


def allowing(repository: HandlerRepository, *commits: str, below: bool = False) -> AgentConfiguration:
    location = f"{repository.path.parent}/" if below else str(repository.path)
    return AgentConfiguration([AllowedSource(location, list(commits))])


def fetched(configuration: AgentConfiguration, source: str, into: Path, branch: str = "") -> HandlerSource:
    return fetch_source(configuration, source, branch, into)


def test_the_pinned_commit_is_checked_out_even_after_the_branch_moved_on(
    repository: HandlerRepository, tmp_path: Path
) -> None:
    pinned = repository.commit()
    repository.write("user_command/restart.sh", "#!/bin/sh\nexit 66\n")
    repository.commit()
    source = fetched(allowing(repository, pinned), str(repository.path), tmp_path / "a")
    assert source.commit == pinned
    assert source.command("restart").path.read_text() == "#!/bin/sh\nexit 0\n"
    assert os.access(source.command("restart").path, os.X_OK)
    assert not (tmp_path / "a" / "git").exists()


def test_a_branch_that_moved_away_from_the_pinned_commit_is_refused(
    repository: HandlerRepository, tmp_path: Path
) -> None:
    pinned = repository.commit()
    configuration = allowing(repository, pinned, below=True)
    assert fetched(configuration, str(repository.path), tmp_path / "a", "main").commit == pinned
    repository.write("user_command/evil", "#!/bin/sh\nexit 0\n")
    moved = repository.commit()
    with pytest.raises(ConfigError, match=f"is at {moved}, which is not a commit"):
        fetched(configuration, str(repository.path), tmp_path / "b", "main")
    with pytest.raises(ConfigError, match="is not one that this agent allows"):
        fetched(configuration, str(repository.path), tmp_path / "c", moved)
    assert not list((tmp_path / "b" / "files").iterdir())


def test_a_repository_that_is_not_listed_is_refused_before_git_runs(
    repository: HandlerRepository, tmp_path: Path
) -> None:
    commit = repository.commit()
    other = HandlerRepository(tmp_path / "elsewhere")
    other.write("user_command/x", "#!/bin/sh\n")
    configuration = allowing(repository, commit, other.commit(), below=True)
    (repository.path.parent / "link").symlink_to(other.path)
    for source in (
        str(other.path),
        f"{repository.path.parent}/../elsewhere",
        f"{repository.path.parent}/link",
        f"file://{repository.path}",
        "ext::sh -c true",
        "--upload-pack=touch /tmp/x",
        "https://git.example/x.git",
    ):
        with pytest.raises(ConfigError):
            fetched(configuration, source, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_rewritten_history_without_the_pinned_commit_is_refused(
    repository: HandlerRepository, tmp_path: Path
) -> None:
    repository.commit()
    with pytest.raises(PeerError, match="has no commit"):
        fetched(allowing(repository, "ab" * 20), str(repository.path), tmp_path / "a")


def test_neither_hooks_nor_filters_nor_submodules_of_a_repository_run(
    repository: HandlerRepository, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    inner = HandlerRepository(tmp_path / "inner")
    inner.commit()
    git(repository.path, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "inside")
    repository.write(".gitattributes", "* filter=x ident text eol=crlf\n", 0o644)
    repository.write(".git/hooks/post-checkout", f"#!/bin/sh\ntouch {witness}\n")
    repository.write(".git/hooks/post-upload-pack", f"#!/bin/sh\ntouch {witness}\n")
    repository.write("user_command/plain", "#!/bin/sh\n# $Id$\n")
    source = fetched(allowing(repository, repository.commit()), str(repository.path), tmp_path / "a")
    source.check(source.command("plain"))  # unchanged: no identifier, no line ends
    assert not list((tmp_path / "a" / "files" / "inside").glob("*"))
    assert not witness.exists()


def test_names_that_climb_out_and_links_are_refused(repository: HandlerRepository, tmp_path: Path) -> None:
    (repository.path / "user_command" / "way_out").symlink_to("/bin/true")
    (repository.path / "user_command" / "inside").symlink_to("restart.sh")
    (repository.path / "outside").symlink_to(tmp_path)
    repository.write("user_command/notes.txt", "not a program", 0o644)
    repository.write("user_command/deeper/x", "#!/bin/sh\n")
    repository.write("user_command/two.sh", "#!/bin/sh\n")
    repository.write("user_command/two.py", "#!/usr/bin/env python3\n")
    source = fetched(allowing(repository, repository.commit()), str(repository.path), tmp_path / "a")
    for name, why in {
        "way_out": "symbolic link",
        "inside": "symbolic link",
        "notes": "not executable",
        "../../bin/true": "no path",
        "/bin/true": "no path",
        "deeper/x": "no path",
        "..": "no path",
        "x": "there is no command",
        "two": "more than one file",
    }.items():
        with pytest.raises(ConfigError, match=why):
            source.command(name)
    assert [handler.name for handler in source.handlers("user_command")] == ["restart.sh", "two.py", "two.sh"]
    assert not any(path.is_symlink() for path in (tmp_path / "a").rglob("*"))


def test_a_file_that_was_changed_after_the_checkout_is_not_run(repository: HandlerRepository, tmp_path: Path) -> None:
    source = fetched(allowing(repository, repository.commit()), str(repository.path), tmp_path / "a")
    handler = source.command("restart")
    source.check(handler)
    assert (
        handler.blob
        == blob_id(handler.path.read_bytes(), 40)
        == git(repository.path, "rev-parse", "HEAD:user_command/restart.sh")
    )
    handler.path.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(PeerError, match="is not the file of commit"):
        source.check(handler)
    handler.path.unlink()
    handler.path.symlink_to("/bin/true")
    with pytest.raises(PeerError, match="cannot be read"):
        source.check(handler)


def test_a_source_with_a_file_above_the_limit_is_refused(repository: HandlerRepository, tmp_path: Path) -> None:
    repository.write("user_command/large", "#!/bin/sh\n" + "".join(f"# {n * 7919}\n" for n in range(300_000)))
    commit = repository.commit()
    text = f"sources: [{{from: {repository.path}, commits: [{commit}]}}]\nlimits: {{files: 100KB}}\n"
    (tmp_path / "agent.yml").write_text(text)
    with pytest.raises(PeerError, match=r"git fetch failed|has no commit"):
        fetched(read_configuration(tmp_path / "agent.yml"), str(repository.path), tmp_path / "a")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sources: []", "length >= 1"),
        ("sources: [{from: /srv/x, commits: [main]}]", "commits"),
        ("sources: [{from: /srv/../x, commits: []}]", "commits"),
        ("sources: [{from: 'https://u:secret@git.example/x', commits: [%s]}]" % ("a" * 40), "password"),
        ("sources: [{from: relative/x, commits: [%s]}]" % ("a" * 40), "absolute path"),
        ("sources: [{from: /x, commits: [%s]}]\nlimits: {time: 0s}" % ("a" * 40), "time"),
        ("sources: [{from: /x, commits: [%s]}]\nlimits: {memory: 1KiB}" % ("a" * 40), "memory"),
        ("sources: [{from: /x, commits: [%s]}]\nlimit: {}" % ("a" * 40), "limit"),
        ("{", "not YAML"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "agent.yml").write_text(text)
    with pytest.raises(CrescendoError, match=why) as caught:
        read_configuration(tmp_path / "agent.yml")
    assert "secret" not in str(caught.value)


def test_a_configuration_that_every_account_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.yml"
    path.write_text(f"sources: [{{from: /x, commits: [{'a' * 40}]}}]")
    assert read_configuration(path).limits.handlers == 8
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="every account may change"):
        read_configuration(path)


def test_a_prefix_allows_what_is_below_it_and_nothing_beside_it() -> None:
    assert is_within("https://git.example/team/a.git", "https://git.example/team/")
    assert not is_within("https://git.example/team2/a.git", "https://git.example/team")
    assert not is_within("https://git.example/team2/a.git", "https://git.example/team/")
    assert not is_within("https://git.example.evil/team/a.git", "https://git.example/")
    assert not is_within("/srv/handlers2", "/srv/handlers/")
    assert not is_within("https://git.example/a", "/")
