"""Which columns do Maestro's inspector files have, and which readings go into them?

One sheet per file, with the column names and order of Maestro's own files, misspellings included. A column lists the
attributes that can fill it, by the names that each system's management uses. A value that a system does not report
stays empty. Reads and writes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crescendo.exporters.maestro.readings import Attributes
from crescendo.model.maestro import ALLOCATOR, CONNECTION, HEADINGS, MEMORY, QUEUE, ROUTER, ROUTER_LINK

_BOOLEANS = {"opened", "isEncrypted", "isAuthenticated"}


@dataclass(frozen=True)
class Sheet:
    """One file: its column names, and one row per entity below a folder."""

    file: str
    folder: str
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    named: str = ""  # the name to show, if it is not that of the entity
    needs: str = ""  # attributes, separated by spaces: an entity that has none of them belongs to another system

    @property
    def columns(self) -> Mapping[str, str]:
        return HEADINGS[self.folder]

    @property
    def header(self) -> list[str]:
        return ["Timestamp", "Name", *self.columns]

    def cells(self, entity: str, attributes: Attributes) -> list[str] | None:
        """The row of an entity without its time; None if it does not belong on this sheet."""
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
            return _text(attributes[name], boolean=name in _BOOLEANS)
        # A map was recorded attribute by attribute; Maestro writes it as one cell.
        inner = {key.removeprefix(f"{name}."): attributes[key] for key in attributes if key.startswith(f"{name}.")}
        if inner:
            return "{" + ", ".join(f"{key}={_text(value)}" for key, value in inner.items()) + "}"
    return ""


def _text(value: float | str, *, boolean: bool = False) -> str:
    if isinstance(value, str):
        return value
    if boolean:
        return "true" if value else "false"
    return str(int(value)) if value.is_integer() else repr(value)
