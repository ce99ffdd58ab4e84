"""Which of Maestro's files is this, and how are all of them read together?

Recognises each kind by its first bytes and leaves the reading to the module of that kind. Properties are read here: a
few lines of `key=value`, kept as events, without passwords. A whole directory of reports can be read at once.
"""

import re
from collections.abc import Iterable

import msgspec

from crescendo.importers.format import Event, Format, ImportOptions, ImportResult, SourceFile, Workspace
from crescendo.importers.formats.maestro.latency import HDR, is_hdr, read_latency
from crescendo.importers.formats.maestro.messages import RECEIVER, SENDER, kind_of_messages, read_messages
from crescendo.importers.formats.maestro.rates import DAT, is_dat, read_rates
from crescendo.importers.formats.maestro.sheets import SHEET, is_sheet, read_sheets
from crescendo.importers.times import US_NS
from crescendo.model.redaction import redact_value

PROPERTIES = "properties"
_PROPERTY = re.compile(r"\s*([^#!=:\s][^=:\s]*)\s*[=:]\s*(.*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


def kind_of(name: str, head: bytes) -> str | None:
    if is_dat(head):
        return DAT
    if is_hdr(head):
        return HDR
    if is_sheet(name, head):
        return SHEET
    if name.endswith(".properties") and read_properties(head):
        return PROPERTIES
    return kind_of_messages(name, head)


def read_sources(workspace: Workspace, sources: list[SourceFile], _options: ImportOptions) -> ImportResult:
    def of(*kinds: str) -> list[SourceFile]:
        return [source for source in sources if source.kind in kinds]

    properties = {source.number: read_properties(source.head) for source in of(PROPERTIES)}
    result = ImportResult(resolution_ns=US_NS)
    if messages := of(SENDER, RECEIVER):
        result.add(read_messages(workspace, messages, _size(properties.values())))
    if rates := of(DAT):
        result.add(read_rates(workspace, rates))
    if latencies := of(HDR):
        result.add(read_latency(workspace, latencies))
    if sheets := of(SHEET):
        result.add(read_sheets(workspace, sheets))
    for source in of(PROPERTIES):
        result.records[source.number] = len(properties[source.number])
        result.events.append(_event(source, properties[source.number]))
    if messages:
        result.resolution_ns = US_NS  # messages decide the resolution, not the files that count per second
    return result


def read_properties(head: bytes) -> dict[str, str]:
    """Java properties, except for continuation lines."""
    found = {}
    for line in head.decode("latin-1").splitlines():
        if match := _PROPERTY.fullmatch(line):
            found[_unescaped(match[1])] = _unescaped(match[2].strip())
    return found


def _unescaped(text: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(unescape, text)


def _event(source: SourceFile, properties: dict[str, str]) -> Event:
    shown = redact_value(properties)
    return source.label, PROPERTIES, msgspec.json.encode(shown).decode()


def _size(properties: Iterable[dict[str, str]]) -> int:
    """The payload size that all properties files agree on; 0 when they name none or disagree."""
    sizes = {found["messageSize"] for found in properties if "messageSize" in found}
    size = sizes.pop() if len(sizes) == 1 else ""
    return int(size) if size.isdigit() and len(size) < 10 else 0


MAESTRO = Format(
    name="maestro",
    expected=(
        "a .dat, a .hdr log, a CSV file of an inspector (heap, memory-areas, queues, general, routerLink, qdmemory, "
        "connections), a .properties file, or message times (header eta;ata, sender or receiver in the name)"
    ),
    kind_of=kind_of,
    read_sources=read_sources,
)
