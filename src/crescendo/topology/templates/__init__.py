"""How do variables get into the configuration files of a node?

Through the templates in this directory; they may include those of systems. XML values are escaped here. A missing value
is an error, never an empty text.
"""

from crescendo.systems.templates import configuration_templates

_ENVIRONMENT = configuration_templates("crescendo.topology", "crescendo.systems")


def fill_template(name: str, **values: object) -> str:
    """The text of one configuration file."""
    return _ENVIRONMENT.get_template(name).render(values)
