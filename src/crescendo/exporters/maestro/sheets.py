"""Which columns do Maestro's inspector files have, and which readings go into them?

One sheet a file, with the names and the order of the columns that Maestro's own files have, their misspellings
included. A column names the attributes that may stand for it, in the words of each system's management. What a system
does not say stays empty. Reads and writes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crescendo.exporters.maestro.readings import Attributes
from crescendo.model.maestro import ALLOCATOR, CONNECTION, HEADINGS, MEMORY, QUEUE, ROUTER, ROUTER_LINK

_TRUTHS = {"opened", "isEncrypted", "isAuthenticated"}


@dataclass(frozen=True)
class Sheet:
    """One file: a row for each entity below a folder, and what its columns are called."""

    file: str
    folder: str
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    named: str = ""  # the name, where it is not that of the entity
    needs: str = ""  # attributes, separated by blanks: an entity that has none of them is another system's

    @property
    def columns(self) -> Mapping[str, str]:
        return HEADINGS[self.folder]

    @property
    def header(self) -> list[str]:
        return ["Timestamp", "Name", *self.columns]

    def cells(self, entity: str, attributes: Attributes) -> list[str] | None:
        """The row of an entity without its time; None when it does not belong here."""
        if not entity.startswith(self.folder):
            return None
        name = entity.removeprefix(self.folder)
        if (self.only and name not in self.only) or name in self.without:
            return None
        if self.needs and not attributes.keys() & set(self.needs.split()):
            return None
        shown = self.named or str(attributes.get("name", name) if self.folder != "queue/" else name)
        return [shown.removeprefix(self.folder), *(_cell(attributes, names.split()) for names in self.columns.values())]


SHEETS = (
    Sheet("heap.csv", MEMORY, only=("heap",), named="Heap"),
    Sheet("memory-areas.csv", MEMORY, without=("heap", "non-heap")),
    Sheet("queues.csv", QUEUE),
    Sheet("general.csv", ROUTER),
    Sheet("routerLink.csv", ROUTER_LINK),
    Sheet("qdmemory.csv", ALLOCATOR),
    Sheet("connections.csv", CONNECTION, needs="isAuthenticated isEncrypted"),
)


def _cell(attributes: Attributes, names: Iterable[str]) -> str:
    for name in names:
        if name in attributes:
            return _text(attributes[name], truth=name in _TRUTHS)
        # A map was recorded attribute by attribute; Maestro writes it in one piece.
        inner = {key.removeprefix(f"{name}."): attributes[key] for key in attributes if key.startswith(f"{name}.")}
        if inner:
            return "{" + ", ".join(f"{key}={_text(value)}" for key, value in inner.items()) + "}"
    return ""


def _text(value: float | str, *, truth: bool = False) -> str:
    if isinstance(value, str):
        return value
    if truth:
        return "true" if value else "false"
    return str(int(value)) if value.is_integer() else repr(value)
