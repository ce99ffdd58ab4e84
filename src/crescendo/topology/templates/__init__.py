"""How do variables get into the configuration files of a node?

Through the templates in this directory; they may include those of systems. XML values are escaped here. A missing value
is an error, never an empty text.
"""

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

_ENVIRONMENT = Environment(
    loader=ChoiceLoader(
        [PackageLoader("crescendo.topology", "templates"), PackageLoader("crescendo.systems", "templates")]
    ),
    autoescape=select_autoescape(["xml"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def fill_template(name: str, **values: object) -> str:
    """The text of one configuration file."""
    return _ENVIRONMENT.get_template(name).render(values)
