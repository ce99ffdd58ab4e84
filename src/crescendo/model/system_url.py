"""Is this the URL of a system that can be measured?

Its scheme must be that of a known protocol; its options and its path must mean something to that protocol.
"""

from crescendo.model.address import MQTT_VERSIONS
from crescendo.model.protocols import known_protocols, known_schemes, protocol_of_scheme
from crescendo.model.suggestions import choice, closest, suggestion
from crescendo.model.urls import parse_url, redact_url_text


def check_system_url(text: str) -> None:
    """ValueError, which shows no password, if it is not."""
    scheme = text.partition("://")[0].lower()
    protocol = protocol_of_scheme(scheme)
    if protocol is None:
        raise _malformed_url(text, known_schemes()[0], f"it {no_protocol(text)}")
    try:
        url = parse_url(text)
    except ValueError as err:
        raise _malformed_url(text, scheme, str(err)) from None
    if not url.host:
        raise _malformed_url(text, scheme, "it names no host")
    if url.port == 0:
        raise _malformed_url(text, scheme, "its port is not a number from 1 to 65535")
    for option in url.options:
        if option not in protocol.url_options:
            raise ValueError(
                f"url: {url.scheme}:// has no option {option!r}; {suggestion(option, protocol.url_options)}; "
                "options of a queue or topic belong in the address of a workload"
            )
    if (version := url.options.get("version")) not in {None, *MQTT_VERSIONS}:
        raise ValueError(f"url: version={version}: {choice(version, MQTT_VERSIONS)}")
    if url.path.strip("/") and not protocol.has_virtual_hosts:
        able = [scheme for other in known_protocols().values() if other.has_virtual_hosts for scheme in other.schemes]
        raise ValueError(
            f"url {redact_url_text(text)!r} has a path; only {', '.join(able)} have virtual hosts; name the "
            "queue or topic in the address of a workload"
        )


def no_protocol(text: str) -> str:
    """What is wrong with a URL that begins with no known scheme."""
    known = [f"{scheme}://" for scheme in known_schemes()]
    close = closest(text.partition(":")[0].lower(), known_schemes())
    meant = "" if close is None else f"; did you mean '{close}://'?"
    return f"does not say which protocol to speak; begin with {', '.join(known)}{meant}"


def _malformed_url(text: str, scheme: str, why: str) -> ValueError:
    wanted = f"{scheme}://[user:password@]host[:port]"
    return ValueError(f"url {redact_url_text(text)!r}: {why}; it should read {wanted}")
