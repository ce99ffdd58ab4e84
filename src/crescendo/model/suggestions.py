"""Which known name did somebody mean?

One sentence for every misspelt name, wherever it was written. Decides nothing else.
"""

import difflib
from collections.abc import Iterable


def closest(wrong: object, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one; None if none does."""
    found = difflib.get_close_matches(str(wrong), [str(name) for name in known], n=1, cutoff=0.6)
    return found[0] if found else None


def suggestion(wrong: object, known: Iterable[str], *, listed: str = "known") -> str:
    """`did you mean 'x'?`, or all names that there are."""
    names = list(known)
    close = closest(wrong, names)
    return f"{listed}: {', '.join(names)}" if close is None else f"did you mean {close!r}?"


def listing(wrong: object, known: Iterable[str]) -> str:
    """The name that looks most like this one, if any does, and all names that there are."""
    names = list(known)
    close = closest(wrong, names)
    return ("" if close is None else f"did you mean {close!r}? ") + f"known: {', '.join(names)}"


def choice(wrong: object, known: Iterable[str]) -> str:
    """All values that there are, and the one that looks most like this one: for a few values that one cannot guess."""
    names = list(known)
    close = closest(wrong, names)
    listed = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"write {listed}" + ("" if close is None else f"; did you mean {close!r}?")
