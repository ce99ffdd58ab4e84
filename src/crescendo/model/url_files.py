"""Which files does a URL name, and how does it name others instead?

The TLS options ca, cert and key are paths. Notes carry the contents of files, with names in place of paths. Reads none.
"""

from collections.abc import Collection, Iterable, Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.workload import Group

FILE_OPTIONS = ("ca", "cert", "key")


def files_of_url(url: str) -> list[str]:
    """The files that the options of a URL, or of an address, name."""
    return [value for name, value in _options(url) if name in FILE_OPTIONS]


def with_files_at(url: str, places: Mapping[str, str]) -> str:
    """The same URL, which names other files; those without a place stay as they are."""
    if not files_of_url(url):
        return url
    options = [(name, places.get(value, value) if name in FILE_OPTIONS else value) for name, value in _options(url)]
    before, _, rest = url.partition("?")
    _, hash_sign, fragment = rest.partition("#")
    return f"{before}?{urlencode(options, quote_via=quote)}{hash_sign}{fragment}"


def url_with_given_files(url: str, places: Mapping[str, str]) -> str:
    """The URL with the places of its files. ConfigError if it names a file that was not given."""
    check_given(files_of_url(url), places)
    return with_files_at(url, places)


def files_of_addresses(experiment: Experiment) -> list[str]:
    """The files that the addresses of an experiment name, and the places where groups connect."""
    return [
        file
        for group in experiment.workload
        for text in (*group.addresses, group.send_to or "", group.receive_from or "")
        for file in files_of_url(text)
    ]


def with_address_files_at(experiment: Experiment, places: Mapping[str, str]) -> Experiment:
    """The same experiment, whose addresses name other files."""

    def moved(group: Group) -> Group:
        failover = None if group.failover is None else [with_files_at(text, places) for text in group.failover]
        return msgspec.structs.replace(
            group,
            address=with_files_at(group.address, places),
            failover=failover,
            send_to=group.send_to and with_files_at(group.send_to, places),
            receive_from=group.receive_from and with_files_at(group.receive_from, places),
        )

    if not files_of_addresses(experiment):
        return experiment
    return msgspec.structs.replace(experiment, workload=[moved(group) for group in experiment.workload])


def check_given(names: Iterable[str], places: Collection[str]) -> None:
    """ConfigError if one of the names is not that of a given file."""
    for name in names:
        if name not in places:
            raise ConfigError(f"{name!r} is not among the files that this peer was given")


def _options(url: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(urlsplit(url).query, keep_blank_values=True)
    except ValueError:
        return []  # its user reports that it is not a URL
