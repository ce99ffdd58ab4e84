"""How do settings get into a configuration file of a system?

By the templates beside this file. In XML every value is escaped; in other formats the caller has made it safe. A name
that the caller did not give is an error, never an empty string.
"""

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

_ENVIRONMENT = Environment(
    loader=PackageLoader("crescendo.systems", "templates"),
    autoescape=select_autoescape(["xml"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render(name: str, **values: object) -> str:
    """The text of one file."""
    return _ENVIRONMENT.get_template(name).render(values)
