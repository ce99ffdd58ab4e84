"""What may stand in a router's configuration file?

The answer is in the router's own schema, a JSON file that every version of qpid-dispatch and skupper-router installs.
From it comes a Jinja2 template in which every section is optional and repeatable and every attribute optional, and a
check of the variables of a node. So a new version of a router needs no code.
"""

import difflib
import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from crescendo.model.errors import ConfigError

_CONFIGURATION = "configurationEntity"
_PREFIX = "router.config."
_NOT_IN_VALUES = set('#{}"\\')  # they end or change a value in the file
_NESTED = """\
{%- macro nested(values, pad) %}
{% for key, value in values.items() %}
{% if value is mapping %}
{{ pad }}{{ key }}: {
{{ nested(value, pad + '    ') -}}
{{ pad }}}
{% else %}
{{ pad }}{{ key }}: {{ value }}
{% endif %}
{% endfor %}
{% endmacro %}
"""


class SchemaSection(Struct, frozen=True):
    """A section of the file: its attributes by name, older names included."""

    name: str
    attributes: dict[str, dict[str, Any]]
    singleton: bool


class RouterSchema(Struct, frozen=True):
    """All sections of one version of a router."""

    sections: dict[str, SchemaSection]
    checked: bool = True  # False: made from the variables themselves, because there is no schema


def read_schema(path: Path) -> RouterSchema:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        types = document["entityTypes"]
        sections = {section.name: section for name in types if (section := _section(name, types)) is not None}
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise ConfigError(f"{path}: this is not the schema of a router (qdrouter.json or skrouter.json)") from err
    if not sections:
        raise ConfigError(f"{path}: this schema has no configuration sections")
    return RouterSchema(sections)


def schema_of_variables(variables: list[dict[str, Any]]) -> RouterSchema:
    """A schema with exactly the sections and attributes that are used: nothing is checked with it."""
    sections: dict[str, SchemaSection] = {}
    for values in variables:
        for name, entries in values.items():
            if name == "machine":
                continue
            known = sections.setdefault(name, SchemaSection(name, {}, False)).attributes
            for entry in entries:
                for attribute, value in entry.items():
                    known.setdefault(attribute, {"type": _plain_type(value)})
    return RouterSchema(sections, checked=False)


def _plain_type(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "map" if isinstance(value, dict) else "string"


def _section(name: str, types: dict[str, Any]) -> SchemaSection | None:
    short = name.removeprefix(_PREFIX)
    if "." in short or _CONFIGURATION not in _ancestors(name, types):
        return None
    attributes: dict[str, dict[str, Any]] = {}
    for level in (name, *_ancestors(name, types)):
        for attribute, facts in types[level].get("attributes", {}).items():
            # Attributes that can neither be set at the start nor changed later are figures that the router reports.
            if facts.get("create") or facts.get("update") or (level == name and facts.get("required")):
                attributes.setdefault(attribute, facts)
                if "deprecationName" in facts:
                    attributes.setdefault(facts["deprecationName"], {**facts, "required": False})
    attributes.pop("type", None)  # the name of the section says it
    return SchemaSection(short, attributes, bool(types[name].get("singleton")))


def _ancestors(name: str, types: dict[str, Any]) -> list[str]:
    found: list[str] = []
    while (parent := types[found[-1] if found else name].get("extends")) is not None and parent not in found:
        found.append(parent)
    return found


def template_of(schema: RouterSchema) -> str:
    """The Jinja2 template of the configuration file. `item` holds the variables of one router."""
    parts = [_NESTED]
    for section in schema.sections.values():
        parts.append(f"{{% for entry in item['{section.name}'] | default([]) %}}\n{section.name} {{\n")
        for attribute, facts in section.attributes.items():
            value = f"entry['{attribute}']"
            parts.append(f"{{% if {value} is defined %}}\n{_line(attribute, value, facts)}{{% endif %}}\n")
        parts.append("}\n\n{% endfor %}\n")
    return "".join(parts)


def _line(attribute: str, value: str, facts: dict[str, Any]) -> str:
    if facts.get("type") == "map":
        return f"    {attribute}: {{\n{{{{ nested({value}, '        ') -}}}}\n    }}\n"
    filters = " | lower" if facts.get("type") == "boolean" else ""
    return f"    {attribute}: {{{{ {value}{filters} }}}}\n"


def check_variables(schema: RouterSchema, name: str, variables: dict[str, Any]) -> None:
    """Refuse what the router would refuse: unknown sections, attributes and values."""
    for section_name, entries in variables.items():
        if section_name == "machine":
            continue
        section = schema.sections.get(section_name)
        if section is None:
            hint = _hint(section_name, list(schema.sections))
            raise ConfigError(f"node {name}: the router has no section {section_name}{hint}")
        if section.singleton and len(entries) > 1:
            raise ConfigError(f"node {name}: there can be only one {section_name} section")
        for at, entry in enumerate(entries):
            _check_entry(schema, section, entry, f"node {name}: {section_name}[{at}]")


def _check_entry(schema: RouterSchema, section: SchemaSection, entry: dict[str, Any], where: str) -> None:
    for attribute, value in entry.items():
        facts = section.attributes.get(attribute)
        if facts is None:
            hint = _hint(attribute, list(section.attributes))
            raise ConfigError(f"{where}: {section.name} has no attribute {attribute}{hint}")
        _check_value(facts.get("type"), value, f"{where}.{attribute}", checked=schema.checked)
        if facts.get("type") != "map" and (bad := _forbidden(attribute, str(value))):
            raise ConfigError(f"{where}.{attribute}: the configuration file cannot hold {bad!r} in a value")
    for attribute, facts in section.attributes.items():
        if facts.get("required") and "default" not in facts and attribute not in entry:
            older = facts.get("deprecationName")
            if older is None or older not in entry:
                raise ConfigError(f"{where}: {section.name} needs the attribute {attribute}")


def _forbidden(attribute: str, text: str) -> str | None:
    for character in text:
        if ord(character) < 32 or (character in _NOT_IN_VALUES and not (attribute == "pattern" and character == "#")):
            return character
    return None


def _check_value(kind: Any, value: Any, where: str, *, checked: bool) -> None:
    if not checked:
        return
    if isinstance(kind, list):
        if str(value) not in kind:
            raise ConfigError(f"{where}: {value!r} is not one of {', '.join(kind)}{_hint(str(value), kind)}")
    elif kind == "integer":
        try:
            int(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{where}: {value!r} is not a whole number") from None
    elif kind == "boolean":
        if str(value).lower() not in {"true", "false", "yes", "no", "on", "off", "1", "0"}:
            raise ConfigError(f"{where}: {value!r} is neither yes nor no")
    elif isinstance(value, dict) != (kind == "map"):
        raise ConfigError(f"{where}: expected {'a mapping' if kind == 'map' else 'a single value'}")


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1)
    original = next((each for each in known if close and each.lower() == close[0]), None)
    return f"; did you mean {original}?" if original else f"; known: {', '.join(known)}"


def find_schema(program: Path, file_name: str) -> Path | None:
    """The schema that was installed together with this program."""
    prefix = program.resolve().parent.parent
    for folder in ("lib", "lib64", "share"):
        for path in sorted((prefix / folder).glob(f"**/management/{file_name}")) if (prefix / folder).is_dir() else ():
            return path
    return None
