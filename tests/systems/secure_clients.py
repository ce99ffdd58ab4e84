"""Clients that other people wrote, over TLS: each passes one message, with the certificates it is given."""

import contextlib
import gc
import queue
import ssl
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

PATIENCE_S = 30.0
HOST = "127.0.0.1"
BODY = "through tls"
_LONG_AGO, _LONG_HENCE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
SCHEMES = ("amqps", "amqp091s", "stomp+ssl", "mqtts")


@dataclass(frozen=True)
class Door:
    """Where a listener is, who may come in, and what to trust and show."""

    scheme: str
    port: int
    user: str
    password: str
    ca: Path
    certificate: Path | None = None
    key: Path | None = None

    @property
    def nameless(self) -> "Door":
        """The same, with nothing to show."""
        return replace(self, certificate=None, key=None)

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


def doors_of(instance: RunningInstance) -> list[Door]:
    """The TLS listeners, read from the URLs alone: they are all that a client gets."""
    found = []
    for scheme in SCHEMES:
        if scheme in instance.endpoints:
            parts = urlsplit(instance.endpoints[scheme])
            files = {name: Path(values[0]) for name, values in parse_qs(parts.query).items()}
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
            found.append(
                Door(scheme, parts.port or 0, user, password, files["ca"], files.get("cert"), files.get("key"))
            )
    return found


def stranger(directory: Path, host: str = HOST) -> tuple[Path, Path]:
    """A certificate that nobody but itself has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stranger")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    with_dates = made.not_valid_before(_LONG_AGO).not_valid_after(_LONG_HENCE)
    signed = with_dates.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    place = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))])
    signed = signed.add_extension(place, critical=False)
    certificate, secret = directory / "stranger.pem", directory / "stranger.key"
    certificate.write_bytes(signed.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, secret


def passed(door: Door) -> str:
    """Send one message with the client of that protocol and return what came back. Raises when it is not let in."""
    return {"amqps": _proton, "amqp091s": _pika, "stomp+ssl": _stomp, "mqtts": _paho}[door.scheme](door)


def why_not(door: Door) -> str:
    """The client's complaint; empty when there is none."""
    complaint = ""
    with warnings.catch_warnings():
        # Some of these clients forget their socket when they are refused. Ours uses no socket of this class.
        warnings.filterwarnings("ignore", "unclosed <ssl.SSLSocket", ResourceWarning)
        try:
            passed(door)
        except Exception as err:
            complaint = repr(err)
        gc.collect()
    return complaint


def _proton(door: Door) -> str:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(door.ca))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, str(door.ca))
    if door.certificate is not None:
        domain.set_credentials(str(door.certificate), str(door.key), None)
    who = {"user": door.user, "password": door.password, "allowed_mechs": "PLAIN"} if door.user else {}
    # Proton compares names only, never addresses.
    how = {"ssl_domain": domain, "sni": "localhost", "reconnect": False, "timeout": PATIENCE_S}
    connection = BlockingConnection(f"amqps://{HOST}:{door.port}", **how, **who)
    try:
        address = f"tls-{uuid.uuid4().hex}"
        receiver, sender = connection.create_receiver(address), connection.create_sender(address)
        sender.send(Message(body=BODY.encode(), inferred=True), timeout=PATIENCE_S)
        message = receiver.receive(timeout=PATIENCE_S)  # its body is a view that lives no longer than it does
        receiver.accept()
        return bytes(message.body).decode()
    finally:
        connection.close()


def _pika(door: Door) -> str:
    parameters = pika.ConnectionParameters(
        HOST,
        door.port,
        "/",
        pika.PlainCredentials(door.user, door.password),
        ssl_options=pika.SSLOptions(door.context, HOST),
        socket_timeout=PATIENCE_S,
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        name = channel.queue_declare(f"tls-{uuid.uuid4().hex}", auto_delete=True).method.queue
        channel.basic_publish("", name, BODY.encode())
        _, _, body = next(channel.consume(name, auto_ack=True, inactivity_timeout=PATIENCE_S))
        return str(body.decode())


def _stomp(door: Door) -> str:
    news: queue.Queue[str] = queue.Queue()

    class Listener(stomp.ConnectionListener):  # type: ignore[misc]
        def on_connected(self, _frame: Any) -> None:
            news.put("connected")

        def on_disconnected(self) -> None:
            news.put("disconnected")

        def on_message(self, frame: Any) -> None:
            news.put(frame.body)

    how = {"vhost": "/", "reconnect_attempts_max": 1, "timeout": PATIENCE_S}
    connection = stomp.Connection12([(HOST, door.port)], **how)
    connection.set_ssl([(HOST, door.port)], key_file=door.key, cert_file=door.certificate, ca_certs=door.ca)
    connection.set_listener("", Listener())
    connection.connect(door.user, door.password, wait=False)  # waiting, it would not notice that it was refused
    if news.get(timeout=PATIENCE_S) != "connected":
        raise ConnectionError("disconnected")
    try:
        destination = f"/queue/tls-{uuid.uuid4().hex}"
        connection.subscribe(destination, id="1", ack="auto")
        connection.send(destination, BODY)
        return news.get(timeout=PATIENCE_S)
    finally:
        connection.disconnect()


def _paho(door: Door) -> str:
    news: queue.Queue[str] = queue.Queue()
    topic = f"tls/{uuid.uuid4().hex}"
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=uuid.uuid4().hex)
    client.username_pw_set(door.user, door.password)
    client.tls_set_context(door.context)
    client.on_connect = lambda *_: client.subscribe(topic, qos=1)
    client.on_subscribe = lambda *_: client.publish(topic, BODY, qos=1)
    client.on_message = lambda _client, _data, message: news.put(message.payload.decode())
    client.on_disconnect = lambda _client, _data, _flags, reason, _properties: news.put(f"disconnected: {reason}")
    client.connect(HOST, door.port)
    client.loop_start()
    try:
        answer = news.get(timeout=PATIENCE_S)
    finally:
        client.on_disconnect = None
        with contextlib.suppress(OSError):
            client.disconnect()
        client.loop_stop()
    if answer != BODY:
        raise ConnectionError(answer)
    return answer
