"""What can a user do with a recording after something that came after it has failed?"""

import shlex
from pathlib import Path


def kept_recording(location: Path | str, verb: str) -> str:
    """That the recording is kept, and the command that repeats what failed."""
    return f"the recording is kept; run: crescendo {verb} {shlex.quote(str(location))}"
