"""How do settings get into the configuration files of a system?

Through the templates in this directory. XML values are escaped here; in other formats the caller escapes them. A
missing value is an error, never an empty string.
"""

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape


def configuration_templates(*packages: str) -> Environment:
    """The templates of configuration files in these packages; the first package that has a template wins."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package, "templates") for package in packages]),
        autoescape=select_autoescape(["xml"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


_ENVIRONMENT = configuration_templates("crescendo.systems")


def render(name: str, **values: object) -> str:
    """The text of one configuration file."""
    return _ENVIRONMENT.get_template(name).render(values)
