"""Which few of many things are enough to make something fail?

Delta debugging: first each thing alone, then ever finer parts and their complements, until no single one can be left
out. Pure: the caller says whether a selection fails, and is asked once per selection.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

ItemT = TypeVar("ItemT")


def shrink(items: Sequence[ItemT], fails: Callable[[list[ItemT]], bool]) -> list[ItemT]:
    """The fewest that were found to fail, in their order. `items` as a whole fail."""
    known: dict[tuple[int, ...], bool] = {tuple(range(len(items))): True}

    def still_fails(chosen: tuple[int, ...]) -> bool:
        if chosen not in known:
            known[chosen] = bool(chosen) and fails([items[number] for number in chosen])
        return known[chosen]

    for number in range(len(items)):
        if still_fails((number,)):
            return [items[number]]
    return [items[number] for number in _reduced(tuple(range(len(items))), still_fails)]


def _reduced(chosen: tuple[int, ...], still_fails: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    parts = 2
    while len(chosen) >= 2:
        pieces = _split(chosen, parts)
        complements = [tuple(number for number in chosen if number not in piece) for piece in pieces]
        smaller = next((part for part in [*pieces, *complements] if still_fails(part)), None)
        if smaller is not None:
            parts = max(2, parts - 1) if smaller in complements and len(pieces) > 2 else 2
            chosen = smaller
        elif parts < len(chosen):
            parts = min(len(chosen), 2 * parts)
        else:
            break
    return chosen


def _split(chosen: tuple[int, ...], parts: int) -> list[tuple[int, ...]]:
    edges = [len(chosen) * part // parts for part in range(parts + 1)]
    return [chosen[start:end] for start, end in pairwise(edges) if end > start]
