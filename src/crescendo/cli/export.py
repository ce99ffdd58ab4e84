"""The verb `export`: a recording in the format of another tool."""

from pathlib import Path

from crescendo.model.errors import ConfigError

FORMATS = ("maestro",)


def export(form: str, run_dir: Path, out: Path) -> int:
    if form not in FORMATS:
        raise ConfigError(f"no export format is called {form!r}; known: {', '.join(FORMATS)}")
    from crescendo.exporters.maestro.export import export_maestro

    for path in export_maestro(run_dir, out):
        print(path)
    return 0
