"""Which methods manage an AMQP 0-9-1 connection?

The methods of channel 0: sign-in, tuning, close, and RabbitMQ's notice that it has stopped reading messages.
"""

from msgspec import field

from crescendo.wire.amqp091.fields import Bit, FieldTable, Long, LongString, Octet, Short, ShortString
from crescendo.wire.amqp091.methods import Method


class ConnectionMethod(Method, frozen=True):
    """A method that is valid only on channel 0."""


class ConnectionStart(ConnectionMethod, frozen=True):
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: FieldTable = field(default_factory=dict)
    mechanisms: LongString = b"PLAIN"
    locales: LongString = b"en_US"


class ConnectionStartOk(ConnectionMethod, frozen=True):
    client_properties: FieldTable = field(default_factory=dict)
    mechanism: ShortString = "PLAIN"
    response: LongString = b""
    locale: ShortString = "en_US"


class ConnectionSecure(ConnectionMethod, frozen=True):
    challenge: LongString = b""


class ConnectionSecureOk(ConnectionMethod, frozen=True):
    response: LongString = b""


class ConnectionTune(ConnectionMethod, frozen=True):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionTuneOk(ConnectionMethod, frozen=True):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionOpen(ConnectionMethod, frozen=True):
    virtual_host: ShortString = "/"
    reserved_1: ShortString = ""
    reserved_2: Bit = False


class ConnectionOpenOk(ConnectionMethod, frozen=True):
    reserved_1: ShortString = ""


class ConnectionClose(ConnectionMethod, frozen=True):
    reply_code: Short = 200
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


class ConnectionCloseOk(ConnectionMethod, frozen=True):
    pass


class ConnectionBlocked(ConnectionMethod, frozen=True):
    reason: ShortString = ""


class ConnectionUnblocked(ConnectionMethod, frozen=True):
    pass
