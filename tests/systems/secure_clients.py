"""Third-party clients over TLS: each passes one message, with the certificates it is given."""

import contextlib
import gc
import queue
import socket
import ssl
import struct
import uuid
import warnings
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import paho.mqtt.client as mqtt
import pika
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from proton import Message, SSLDomain
from proton.utils import BlockingConnection

import stomp
from crescendo.systems.instance import RunningInstance

TIMEOUT_S = 30.0
BODY = "through tls"
_VALID_FROM, _VALID_UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
SCHEMES = ("amqps", "amqp091s", "stomp+ssl", "mqtts", "openwire+ssl", "core+ssl")


@dataclass(frozen=True)
class TlsListener:
    """A TLS listener: its place, its user, the CA to trust and the certificate to present."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    ca: Path
    certificate: Path | None = None
    key: Path | None = None

    @property
    def without_certificate(self) -> "TlsListener":
        """The same, without a client certificate."""
        return replace(self, certificate=None, key=None)

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


def tls_listeners(instance: RunningInstance) -> list[TlsListener]:
    """The TLS listeners, from the URLs alone: a client gets nothing else."""
    found = []
    for scheme in SCHEMES:
        if scheme in instance.endpoints:
            parts = urlsplit(instance.endpoints[scheme])
            files = {name: Path(values[0]) for name, values in parse_qs(parts.query).items()}
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
            place = (scheme, parts.hostname or "", parts.port or 0)
            found.append(TlsListener(*place, user, password, files["ca"], files.get("cert"), files.get("key")))
    return found


def self_signed(directory: Path, host: str = "127.0.0.1") -> tuple[Path, Path]:
    """A self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stranger")])
    draft = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    with_dates = draft.not_valid_before(_VALID_FROM).not_valid_after(_VALID_UNTIL)
    signed = with_dates.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    host_name = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))])
    signed = signed.add_extension(host_name, critical=False)
    certificate, secret = directory / "stranger.pem", directory / "stranger.key"
    certificate.write_bytes(signed.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, secret


def pass_over_tls(listener: TlsListener) -> str:
    """Send one message with the client of that protocol and return the received one. Raises when it is refused."""
    clients = {
        "amqps": _proton, "amqp091s": _pika, "stomp+ssl": _stomp, "mqtts": _paho, "openwire+ssl": _openwire,
        "core+ssl": _core,
    }  # fmt: skip
    return clients[listener.scheme](listener)


def refusal(listener: TlsListener) -> str:
    """The client's error; empty when there is none."""
    error = ""
    with warnings.catch_warnings():
        # Some of these clients leak their socket when they are refused. Ours uses no socket of this class.
        warnings.filterwarnings("ignore", "unclosed <ssl.SSLSocket", ResourceWarning)
        try:
            pass_over_tls(listener)
        except Exception as err:
            error = repr(err)
        gc.collect()
    return error


def _proton(listener: TlsListener) -> str:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(listener.ca))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, str(listener.ca))
    if listener.certificate is not None:
        domain.set_credentials(str(listener.certificate), str(listener.key), None)
    credentials = (
        {"user": listener.user, "password": listener.password, "allowed_mechs": "PLAIN"} if listener.user else {}
    )
    # Proton compares host names only, never addresses.
    options = {"ssl_domain": domain, "sni": "localhost", "reconnect": False, "timeout": TIMEOUT_S}
    connection = BlockingConnection(f"amqps://{listener.host}:{listener.port}", **options, **credentials)
    try:
        address = f"tls-{uuid.uuid4().hex}"
        receiver, sender = connection.create_receiver(address), connection.create_sender(address)
        sender.send(Message(body=BODY.encode(), inferred=True), timeout=TIMEOUT_S)
        message = receiver.receive(timeout=TIMEOUT_S)  # its body is a view that is valid as long as the message
        receiver.accept()
        return bytes(message.body).decode()
    finally:
        connection.close()


def _pika(listener: TlsListener) -> str:
    parameters = pika.ConnectionParameters(
        listener.host,
        listener.port,
        "/",
        pika.PlainCredentials(listener.user, listener.password),
        ssl_options=pika.SSLOptions(listener.context, listener.host),
        socket_timeout=TIMEOUT_S,
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        name = channel.queue_declare(f"tls-{uuid.uuid4().hex}", auto_delete=True).method.queue
        channel.basic_publish("", name, BODY.encode())
        _, _, body = next(channel.consume(name, auto_ack=True, inactivity_timeout=TIMEOUT_S))
        return str(body.decode())


def _stomp(listener: TlsListener) -> str:
    answers: queue.Queue[str] = queue.Queue()

    class Listener(stomp.ConnectionListener):  # type: ignore[misc]
        def on_connected(self, _frame: Any) -> None:
            answers.put("connected")

        def on_disconnected(self) -> None:
            answers.put("disconnected")

        def on_message(self, frame: Any) -> None:
            answers.put(frame.body)

    options = {"vhost": "/", "reconnect_attempts_max": 1, "timeout": TIMEOUT_S}
    connection = stomp.Connection12([(listener.host, listener.port)], **options)
    connection.set_ssl(
        [(listener.host, listener.port)], key_file=listener.key, cert_file=listener.certificate, ca_certs=listener.ca
    )
    connection.set_listener("", Listener())
    connection.connect(listener.user, listener.password, wait=False)  # with wait=True it would not notice a refusal
    if answers.get(timeout=TIMEOUT_S) != "connected":
        raise ConnectionError("disconnected")
    try:
        destination = f"/queue/tls-{uuid.uuid4().hex}"
        connection.subscribe(destination, id="1", ack="auto")
        connection.send(destination, BODY)
        return answers.get(timeout=TIMEOUT_S)
    finally:
        connection.disconnect()


def _paho(listener: TlsListener) -> str:
    answers: queue.Queue[str] = queue.Queue()
    topic = f"tls/{uuid.uuid4().hex}"
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=uuid.uuid4().hex)
    client.username_pw_set(listener.user, listener.password)
    client.tls_set_context(listener.context)
    # The callbacks use the client they are given: one that held it would make a cycle, and the garbage collector may
    # finalise the sockets of a refused client before the client closes them.
    client.on_connect = lambda connected, *_: connected.subscribe(topic, qos=1)
    client.on_subscribe = lambda subscribed, *_: subscribed.publish(topic, BODY, qos=1)
    client.on_message = lambda _client, _data, message: answers.put(message.payload.decode())
    client.on_disconnect = lambda _client, _data, _flags, reason, _properties: answers.put(f"disconnected: {reason}")
    client.connect(listener.host, listener.port)
    client.loop_start()
    try:
        answer = answers.get(timeout=TIMEOUT_S)
    finally:
        client.on_disconnect = None
        with contextlib.suppress(OSError):
            client.disconnect()
        client.loop_stop()
    if answer != BODY:
        raise ConnectionError(answer)
    return answer


def _openwire(listener: TlsListener) -> str:
    """Both sides introduce themselves, by hand: no OpenWire client for Python exists."""
    greeting = b"\x01ActiveMQ" + struct.pack(">i?", 12, False)
    answer = _exchange(listener, struct.pack(">I", len(greeting)) + greeting, 4 + len(greeting))
    return BODY if answer[4:13] == b"\x01ActiveMQ" else repr(answer)


def _core(listener: TlsListener) -> str:
    """A ping that the broker returns, by hand: no client of Core for Python exists."""
    ping = struct.pack(">ibqq", 17, 10, 0, 60_000)
    answer = _exchange(listener, b"ARTEMIS" + ping, len(ping))
    return BODY if answer == ping else repr(answer)


def _exchange(listener: TlsListener, greeting: bytes, length: int) -> bytes:
    """Send the greeting, and return at least this many bytes of the answer."""
    with (
        socket.create_connection((listener.host, listener.port), TIMEOUT_S) as plain,
        listener.context.wrap_socket(plain, server_hostname=listener.host) as secure,
    ):
        secure.sendall(greeting)
        answer = b""
        while len(answer) < length:
            received = secure.recv(4096)
            if not received:
                raise ConnectionError("closed")
            answer += received
    return answer
