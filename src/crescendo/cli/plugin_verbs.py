"""Which verbs do plugins add?

A plugin's verb is a function with typer's annotations that may return an exit code, or a typer app with verbs of its
own. It is imported when it is called, or listed by --help. A verb of ours wins its name.
"""

import functools
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from crescendo.model.plugins import VERBS, loaded_plugins, plugins

_PANEL = "From plugins"


class PluginVerbs(TyperGroup):
    """A group of verbs that plugins extend."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name, _ in loaded_plugins(VERBS, Callable) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        plugin = plugins(VERBS).get(cmd_name) if own is None else None
        return own if plugin is None else _command(cmd_name, plugin.load(Callable))


def _command(name: str, verb: Any) -> Any:
    app = verb if isinstance(verb, typer.Typer) else typer.Typer(add_completion=False, rich_markup_mode="rich")
    if app is not verb:
        app.command(name)(_exiting(verb))
    command: Any = get_command(app)
    command.name, command.rich_help_panel = name, _PANEL
    return command


def _exiting(verb: Callable[..., int | None]) -> Callable[..., None]:
    @functools.wraps(verb)
    def command(*arguments: Any, **options: Any) -> None:
        raise typer.Exit(verb(*arguments, **options) or 0)

    return command
