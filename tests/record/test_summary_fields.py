"""Is every field of summary.json described, where it is declared and in the documentation?"""

from pathlib import Path

from crescendo.record.summary_fields import fields_tables

ROOT = Path(__file__).parents[2]


def test_the_documentation_describes_every_field_of_the_summary() -> None:
    text = (ROOT / "docs" / "summary.md").read_text(encoding="utf-8")
    assert "\n".join(fields_tables()).rstrip() in text, "write the lines of fields_tables() into docs/summary.md"
