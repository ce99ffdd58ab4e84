"""What does the command `crescendo` call?

Loading the verbs takes some tenths of a second, and Ctrl-C ends as properly then as it does later. Does nothing else.
"""

import sys

_EXIT_INVALID = 3


def main() -> None:
    try:
        from crescendo.cli.main import main as carry_out
    except KeyboardInterrupt:
        print("crescendo: interrupted", file=sys.stderr)
        sys.exit(_EXIT_INVALID)
    carry_out()
