"""How are many managed beans of a Java broker read with one request?

Jolokia answers a list of reads with a list of results. A missing bean or attribute is an error of that one result, kept
as a text; the inspection fails only when nothing could be read.

Some attributes are whole tables or long lists, and expensive for the broker. So it reads everything at first and
periodically, to see texts and new attributes, and in between only what can become a number.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from crescendo.inspectors.attributes import number_of, text_of
from crescendo.inspectors.base import Inspection
from crescendo.inspectors.sources.http import Http
from crescendo.model.errors import PeerError

Attributes = Mapping[str, Any]

_OPTIONS = {"ignoreErrors": "true", "maxDepth": "4", "maxCollectionSize": "1000", "canonicalNaming": "false"}
_PROPERTY = re.compile(r'([^=,:*?]+)=("(?:\\.|[^"\\])*"|[^,]*)')
_FULL_READ_EVERY = 12  # inspections
# Jolokia checks the origin of a request, to keep web pages out; ours come from this machine.
_HEADERS = MappingProxyType({"Origin": "http://localhost"})


class Jolokia:
    """The Jolokia agent of one broker."""

    def __init__(self, url: str, default_path: str) -> None:
        self._http = Http(url, headers=_HEADERS)
        self._path = (self._http.path or default_path) + "/"
        self._numbers: dict[str, list[str]] = {}  # our name for beans -> their attributes that are numbers
        self._inspections = 0

    def read(self, beans: Mapping[str, str], inspection: Inspection) -> dict[str, dict[str, Attributes]]:
        """Read beans by our names for them; a pattern matches several. Returns name -> full bean name -> attributes."""
        in_full = self._inspections % _FULL_READ_EVERY == 0
        requests = [self._request(name, bean, in_full) for name, bean in beans.items()]
        answer = self._http.post(self._path, requests)
        if not isinstance(answer, list) or len(answer) != len(requests):
            raise PeerError("Jolokia did not answer with one result per requested bean")
        found: dict[str, dict[str, Attributes]] = {}
        failures = []
        for (name, bean), request, result in zip(beans.items(), requests, answer, strict=True):
            value = result.get("value") if isinstance(result, dict) else None
            if isinstance(value, dict) and result.get("status") == 200:
                found[name] = _by_bean(bean, value)
                if "attribute" not in request:
                    self._numbers[name] = _numbers_in(found[name])
            else:
                error = result.get("error", "no value") if isinstance(result, dict) else "no result"
                inspection.texts["jolokia", name] = text_of(error)
                failures.append(text_of(error))
        if not found:
            raise PeerError(f"Jolokia could read nothing: {failures[0] if failures else 'nothing was requested'}")
        self._inspections += 1
        return found

    def _request(self, name: str, bean: str, in_full: bool) -> dict[str, Any]:
        request: dict[str, Any] = {"type": "read", "mbean": bean, "config": _OPTIONS}
        if not in_full and self._numbers.get(name):
            request["attribute"] = self._numbers[name]
        return request

    def close(self) -> None:
        self._http.close()


def properties_of(bean: str) -> dict[str, str]:
    """The key properties of a bean's name, without the quotes that some brokers add."""
    _, _, listed = bean.partition(":")
    found = {}
    for key, value in _PROPERTY.findall(listed):
        plain = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        found[key] = plain
    return found


def _by_bean(bean: str, value: dict[str, Any]) -> dict[str, Attributes]:
    if "*" not in bean:
        return {bean: value}
    return {name: attributes for name, attributes in value.items() if isinstance(attributes, dict)}


def _numbers_in(found: Mapping[str, Attributes]) -> list[str]:
    """Attributes that hold a number, or a map that may hold some, in any of the beans."""
    names = {
        name
        for attributes in found.values()
        for name, value in attributes.items()
        if isinstance(value, dict) or number_of(value) is not None
    }
    return sorted(names)
