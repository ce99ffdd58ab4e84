"""Is this the URL of a system that can be measured?

Its scheme must be that of a known protocol; its options and its path must mean something to that protocol.
"""

from crescendo.model.address import MQTT_VERSIONS
from crescendo.model.protocols import known_protocols, known_schemes, protocol_of_scheme
from crescendo.model.suggestions import choice, suggestion
from crescendo.model.urls import parse_url, redact_url_text


def check_system_url(text: str) -> None:
    """ValueError, which shows no password, if it is not."""
    try:
        url = parse_url(text)
    except ValueError:
        raise _malformed_url(text) from None
    protocol = protocol_of_scheme(url.scheme)
    if protocol is None or not url.host or url.port == 0:
        raise _malformed_url(text)
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


def _malformed_url(text: str) -> ValueError:
    known = known_schemes()
    wanted = f"{known[0]}://[user:password@]host[:port] (or {', '.join(known[1:])})"
    return ValueError(f"url {redact_url_text(text)!r} should read {wanted}")
