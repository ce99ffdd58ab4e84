"""Which formats can be imported? A new one is one module and one line here."""

from crescendo.importers.format import Format
from crescendo.importers.formats.amqp_csv import AMQP_CSV
from crescendo.importers.formats.amqperf import AMQPERF
from crescendo.importers.formats.gftp import GFTP
from crescendo.importers.formats.maestro.files import MAESTRO
from crescendo.importers.formats.mlmq_log import MLMQ_LOG
from crescendo.importers.formats.perftest import PERFTEST
from crescendo.importers.formats.quiver import QUIVER
from crescendo.model.errors import ConfigError

FORMATS = {found.name: found for found in (MAESTRO, MLMQ_LOG, AMQP_CSV, AMQPERF, GFTP, QUIVER, PERFTEST)}


def format_of(name: str) -> Format:
    try:
        return FORMATS[name]
    except KeyError:
        raise ConfigError(f"no import format is called {name!r}; known: {', '.join(FORMATS)}") from None
