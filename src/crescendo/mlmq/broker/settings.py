"""How is one broker configured?

The settings of the original middleware and the limits it lacked, read from one YAML file. A value out of range or an
unknown key is an error that names the file, the field and the cure. Starts nothing, connects to nothing.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct

from crescendo.model.document_errors import explain
from crescendo.model.errors import ConfigError
from crescendo.model.protocols import MLMQ
from crescendo.model.redaction import explain_yaml
from crescendo.model.units import Duration, Size, parse_unit

HOST = "127.0.0.1"
DEFAULT_LISTEN = f"{HOST}:{MLMQ.port}"
_LOOPBACK = frozenset({HOST, "localhost"})

Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class BrokerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a broker. Every key has a working default."""

    listen: str = DEFAULT_LISTEN
    http: str = f"{HOST}:0"  # health and metrics; port 0 picks a free port
    database: str = ""  # postgresql://…; empty: an embedded server
    database_file: str = ""  # a file whose first line is that URL; its password is read again for every connection
    data: str = ""  # data directory of the embedded server; empty: a temporary one

    require_durable: bool = True  # refuse a database that would lose acknowledged messages in a crash

    # Few, because requests that wait while they are busy share the next statement: more workers make smaller batches.
    workers: Annotated[int, Meta(ge=1, le=1000)] = 2
    connections: Annotated[int, Meta(ge=1, le=1000)] = 2  # to the database
    request_queue: Count = 1000  # requests that may wait for a worker; more are answered "overloaded"
    response_queue: Count = 10_000  # answers that may wait for slow sockets, all clients together
    batch: Annotated[int, Meta(ge=1, le=4096)] = 128  # requests a worker takes at once; 1: no batching
    load_shedding: bool = True  # False: nothing is answered "overloaded"; requests wait as long as it takes
    indices: bool = True  # False: without the indices of messages, to measure what they are worth
    clients: Count = 1000  # connections from clients
    pipeline: Count = 64  # unanswered requests of one client before we stop reading from it
    waiting: Count = 10_000  # dequeues that may wait for a message

    read_buffer: Size = Size(64 * 1024)
    write_buffer: Size = Size(64 * 1024)  # unsent bytes before answers wait in the response queue
    poll: Duration = Duration(100_000_000)  # how often waiting dequeues query without a wake-up
    send_timeout: Duration = Duration(30 * 10**9)  # a client that does not read for this long is closed
    database_timeout: Duration = Duration(30 * 10**9)  # one statement; also the wait at startup
    drain_timeout: Duration = Duration(10 * 10**9)
    forget_after: Duration = Duration(24 * 3600 * 10**9)  # how long an idle client may still repeat its last request

    command_file: str = ""
    command_poll: Duration = Duration(10**9)
    performance_log: str = ""  # a directory; empty: no log
    performance_unit: Literal["ms", "us"] = "ms"  # as in the original

    def __post_init__(self) -> None:
        for field in ("listen", "http"):
            address_of(field, getattr(self, field))
        for field in ("poll", "send_timeout", "database_timeout", "drain_timeout", "forget_after", "command_poll"):
            if getattr(self, field) < 1_000_000:
                raise ValueError(f"{field}: {getattr(self, field)} is too short; write at least 1ms")
        for field in ("read_buffer", "write_buffer"):
            if not 1024 <= getattr(self, field) <= 64 * 2**20:
                raise ValueError(f"{field}: {getattr(self, field)} B is out of range; write 1KiB to 64MiB")
        if (self.database or self.database_file) and self.data:
            raise ValueError("data: an external database keeps its own data; leave out either database or data")

    @property
    def request_limits(self) -> tuple[int, int]:
        """How many requests may wait for a worker, and how many for a message."""
        if self.load_shedding:
            return self.request_queue, self.waiting
        most = 2 * self.clients * self.pipeline  # no client has more unanswered requests
        return most, most


def address_of(field: str, text: str) -> tuple[str, int]:
    """The host and port of an address on this machine."""
    host, _, port = text.rpartition(":")
    if host not in _LOOPBACK or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(
            f"{field}: {text!r} is not a loopback address; write for example {DEFAULT_LISTEN}, port 0 picks a free one"
        )
    return HOST, int(port)


def load_settings(path: Path | None, overrides: dict[str, Any]) -> BrokerSettings:
    """The settings of the file, overridden by those of the command line."""
    document: Any = {}
    if path is not None:
        try:
            document = yaml.safe_load(path.read_bytes()) or {}
        except OSError as err:
            raise ConfigError(f"{path}: cannot be read: {err.strerror}") from err
        except yaml.YAMLError as err:
            raise ConfigError(f"{path}: not YAML: {explain_yaml(err)}") from None
        if not isinstance(document, dict):
            raise ConfigError(f"{path}: a configuration is a mapping, such as `workers: 4`")
        _check(document, str(path))
    return _check({**document, **overrides}, "the command line" if path is None else f"{path} with the command line")


def _check(document: dict[str, Any], where: str) -> BrokerSettings:
    try:
        return msgspec.convert(document, BrokerSettings, dec_hook=parse_unit)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{where}: {explain(str(err), document, BrokerSettings)}") from err
