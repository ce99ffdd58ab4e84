"""Whose messages were in the way of this run?

Receivers record an event when a destination held messages before the run, and one about all that arrived and was not of
this run. Reads events only, and trusts nothing in them.
"""

from typing import Annotated

import msgspec
import pyarrow.dataset as ds
from msgspec import Meta, Struct

from crescendo.pipeline import columns as c
from crescendo.record.schema import HELD_BEFORE, STRAYS

Count = Annotated[int, Meta(ge=0, le=2**53)]
Text = Annotated[str, Meta(max_length=1000)]


class ForeignRun(Struct, frozen=True):
    """How many messages of one other run; its name is empty where nobody knows it."""

    tag: Text
    messages: Count
    run: Text = ""


class ForeignMessages(Struct, frozen=True):
    """Messages at one address that are not of this run."""

    address: Text
    messages: Count
    unstamped: Count = 0  # not one of ours
    runs: list[ForeignRun] = []
    purged: bool = False
    before: bool = False  # seen before the run, by a look that takes one message at most

    @property
    def sources(self) -> str:
        """Whose they are, as a part of a sentence."""
        named = [f"run {each.run}" if each.run else f"another run (tag {each.tag})" for each in self.runs[:3]]
        more = ["other runs"] if len(self.runs) > 3 else []
        return " and ".join([*named, *more, *(["another program"] if self.unstamped else [])])


def foreign_messages(event_files: list[str]) -> list[ForeignMessages]:
    """What receivers recorded about messages of others; events that cannot be read are left out."""
    if not event_files:
        return []
    table = ds.dataset(event_files, format="parquet").to_table(
        columns=[c.KIND, c.DETAIL], filter=ds.field(c.KIND).isin([HELD_BEFORE, STRAYS])
    )
    found = []
    for row in table.to_pylist():
        try:
            others = msgspec.json.decode(row[c.DETAIL], type=ForeignMessages)
        except (msgspec.MsgspecError, TypeError):
            continue
        found.append(msgspec.structs.replace(others, before=row[c.KIND] == HELD_BEFORE))
    return found
