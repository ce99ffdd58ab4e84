"""How are the templates of pages read? Everything is escaped, and a missing value is an error, never an empty text."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def page_templates(package: str) -> Environment:
    """The templates of one package."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
