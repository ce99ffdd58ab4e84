"""What may the names in files that people write consist of?"""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""Of an experiment or a campaign: part of the name of a directory."""

GROUP_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
"""Of a group: part of the names of peers."""

IN_WORDS = {
    NAME_PATTERN: "letters, digits and . _ - (at most 100), beginning with a letter or digit",
    GROUP_NAME_PATTERN: "letters, digits, _ and - (at most 63), beginning with a letter",
}
