"""`crescendo --help` is where a newcomer starts."""

from typer.main import get_command

from crescendo.cli.main import app

PANELS = {"Measure", "Look at results", "Serve and control", "This machine"}


def test_the_help_shows_every_verb_in_a_panel() -> None:
    for name, verb in get_command(app).commands.items():  # type: ignore[attr-defined]  # typer's app is a group
        assert verb.rich_help_panel in PANELS, name
