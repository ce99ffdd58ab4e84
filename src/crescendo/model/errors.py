"""Whose fault is it?

Three errors, because three different parties act on them. Translate foreign exceptions into one of these at the
boundary, chain with `from`, and let them propagate to the one handler in `cli.main`.
"""


class CrescendoError(Exception):
    """Anything Crescendo raises on purpose."""


class ConfigError(CrescendoError):
    """The user must change something. The message says what is wrong, where, and what would be right. Exit code 2."""


class PeerError(CrescendoError):
    """The system under test or a remote peer misbehaved. Recorded as data; the run continues where it can."""


class LostError(CrescendoError):
    """Evidence was lost, so nothing may be claimed. The verdict is invalid. Exit code 3."""
