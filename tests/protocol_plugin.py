"""A package that offers a protocol, as an installer would leave it in a directory of the import path."""

from pathlib import Path

CODE = """
from crescendo.load.protocols.amqp10 import Amqp10Receiver, Amqp10Sender
from crescendo.model.protocols import MessagingProtocol

PROTOCOL = MessagingProtocol(
    name="toy", scheme="toy", port=7777, driver="toy_protocol:Toy", address_options=("ttl",), url_options=()
)


class ToySender(Amqp10Sender):
    pass


class ToyReceiver(Amqp10Receiver):
    pass
"""


def install_protocol(directory: Path, *, name: str = "toy", code: str = CODE) -> None:
    """A protocol that looks like AMQP 1.0 on the wire, under its own name and scheme."""
    (directory / "toy_protocol.py").write_text(code, encoding="utf-8")
    metadata = directory / "toy_protocol-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-protocol\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(
        f"[crescendo.protocols]\n{name} = toy_protocol:PROTOCOL\n", encoding="utf-8"
    )
