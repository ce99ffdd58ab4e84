"""How is the token of a lab read from a file?

The file must be readable by its owner alone; one that others can read is refused, with the command that cures it.
"""

from pathlib import Path

from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError
from crescendo.model.secret_file import read_secret_file


def lab_of_file(option: str, file: str | Path) -> Lab:
    """The lab whose token this file holds."""
    place = f"{option} {file}"
    try:
        mode = Path(file).stat().st_mode
    except OSError as err:
        raise ConfigError(f"{place}: cannot be read: {err.strerror}") from None
    if mode & 0o077:
        raise ConfigError(f"{place}: other accounts can read it; run: chmod 600 {file}")
    return Lab(read_secret_file(place, file))
