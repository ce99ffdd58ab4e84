"""What does a URL say, and how is it shown without its password?

Parses what people write: a URL that is not valid is a ValueError whose message repeats none of it, because it may
contain a password. Redaction also works on text that is not a valid URL, or that only contains one, and removes too
much rather than too little. Knows no protocol: which schemes, ports and options are right is for others to say.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

HIDDEN = "***"
_LONGEST_LABEL = 63

# From the first colon after :// to the last @. Where an @ comes before that colon, a port may follow the colon:
# amqp://user@host:5672/queue/a@b contains no password.
_PASSWORD = re.compile(r"(://(?:[^:@]*:|[^:]*:(?!\d{1,5}(?:[/?#\s]|$)))).*@", re.DOTALL)
_REMOVED = str.maketrans("", "", "\t\r\n")
"""urlsplit removes these: the password that it finds may differ from the one in the text, and :/\\n/ is a :// to it."""


class Url(NamedTuple):
    """The parts of a URL, decoded but for path and authority. None: it does not name that part."""

    scheme: str
    host: str | None
    port: int | None
    user: str | None
    password: str | None
    path: str  # as written, with its slash
    options: dict[str, str]
    authority: str  # user, password, host and port, as written

    @property
    def virtual_host(self) -> str:
        """What the path names, for protocols that have virtual hosts; empty when there is none."""
        return unquote(self.path.removeprefix("/"))

    @property
    def server(self) -> str:
        """Host and port as written, without user and password."""
        return self.authority.rpartition("@")[2]

    def __repr__(self) -> str:  # a traceback must not show the password
        return f"Url({self.scheme}://{self.server})"


def parse_url(text: str) -> Url:
    """The parts of a URL. A ValueError, which says why but shows none of the text, when it is not one."""
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("its host is not valid; write [ and ] around an IPv6 address, and nowhere else") from None
    try:
        port = parts.port
    except ValueError:
        raise ValueError("its port is not a number from 1 to 65535") from None
    if parts.hostname is not None and not _is_host_name(parts.hostname):
        raise ValueError("its host is not valid; there is a space in it, or a label that is empty or too long")
    return Url(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        path=parts.path,
        options=dict(parse_qsl(parts.query, keep_blank_values=True)),
        authority=parts.netloc,
    )


def _is_host_name(text: str) -> bool:
    """Whether a resolver can be asked for it; whether there is such a host is another question."""
    labels = text.removesuffix(".").split(".")
    return text.isprintable() and " " not in text and all(0 < len(label) <= _LONGEST_LABEL for label in labels)


def without_credentials(url: str) -> str:
    """A URL without user and password. A ValueError, without any of the text, when it is not one."""
    parse_url(url)
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def redact_url(url: str) -> str:
    """A URL without its password. Text that is not a valid URL is redacted as such."""
    url = url.translate(_REMOVED)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return redact_url_text(url)
    if "@" not in parts.netloc:
        return redact_url_text(url)  # an @ further on may end a password that contains a slash
    return redact_authority(url)


def redact_authority(url: str) -> str:
    """A URL that is known to be valid, without its password. An @ after the host has no meaning."""
    scheme, separator, rest = url.partition("://")
    authority = re.match(r"[^/?#]*", rest)
    length = 0 if authority is None else authority.end()
    userinfo, at, server = rest[:length].rpartition("@")
    user, colon, _ = userinfo.partition(":")
    return f"{scheme}{separator}{user}:{HIDDEN}{at}{server}{rest[length:]}" if at and colon else url


def redact_url_text(text: str) -> str:
    """The text without the passwords of the URLs in it, whether or not they are valid."""
    return _PASSWORD.sub(rf"\1{HIDDEN}@", text)
