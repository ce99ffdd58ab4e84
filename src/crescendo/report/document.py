"""How does a page become one file that needs nothing else?

Renders a template with its style, its script, the data of its charts and plotly inside. The template engine escapes all
text and `script_json` all data; a content security policy forbids the page to load anything. Knows no page.
"""

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from crescendo.report import formats
from crescendo.report.glossary import explain_terms, term
from crescendo.report.page_templates import page_templates
from crescendo.report.plots.time_axis import Chart

MAX_UNFOLDED_ROWS = 8
"""Longer tables are collapsed until the reader opens them."""


def render(template: str, charts: Mapping[str, Chart | None], **values: Any) -> str:
    """One HTML document. `charts` are by their id on the page; one without data is None."""
    return (
        _environment()
        .get_template(template)
        .render(
            charts=charts,
            listed=MAX_UNFOLDED_ROWS,
            withheld=formats.WITHHELD,
            style=_asset("report.css"),
            script=_asset("report.js"),
            range_script=_asset("range.js"),
            figures=script_json({name: chart.figure for name, chart in charts.items() if chart is not None}),
            plotly=_packed_plotly() if any(charts.values()) else "",
            **values,
        )
    )


def script_json(value: Any) -> Markup:
    """JSON for a script element, without characters that an HTML parser could take for markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - the loop above escaped the markup


def packed(text: str) -> str:
    """Text for the page's own script to unpack."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def packed_json(value: Any) -> str:
    return packed(json.dumps(value, separators=(",", ":"), allow_nan=False))


@cache
def _packed_plotly() -> str:
    """The plotly library, compressed: two megabytes instead of five in a file that is sent by mail."""
    return packed(get_plotlyjs())


@cache
def _environment() -> Environment:
    templates = page_templates("crescendo.report")
    templates.filters |= {"term": term, "explain_terms": explain_terms}
    return templates


def _asset(name: str) -> Markup:
    loader = _environment().loader
    if loader is None:
        raise LookupError(name)
    return Markup(loader.get_source(_environment(), name)[0])  # noqa: S704 - a file of this package, not user input
