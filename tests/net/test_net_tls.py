"""Is every invalid TLS option reported by name, before a connection is made?"""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certificate_authority import Authority, pem_of
from crescendo.model.errors import ConfigError
from crescendo.net.tls import Tls, client_context, tls_from, tls_of_url
from crescendo.net.transport import connect


@pytest.mark.parametrize("scheme", ["amqps", "amqp091s", "mqtts", "stomp+ssl", "openwire+ssl", "core+ssl"])
def test_the_scheme_asks_for_tls_and_verification_is_on(scheme: str) -> None:
    assert tls_of_url(f"{scheme}://ada:secret@broker:1") == Tls()
    assert Tls().verify
    context = client_context(Tls())
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.minimum_version.name == "TLSv1_2"


@pytest.mark.parametrize("scheme", ["amqp", "amqp091", "mqtt", "stomp", "openwire", "core", "http"])
def test_other_schemes_have_no_tls_and_refuse_its_options(scheme: str) -> None:
    assert tls_of_url(f"{scheme}://broker?durable=yes") is None
    with pytest.raises(ConfigError, match=f"^ca: {scheme}:// is not encrypted"):
        tls_of_url(f"{scheme}://broker?ca=/ca.pem")


def test_tls_options_are_read_and_others_ignored() -> None:
    url = "amqps://broker?ca=%2Fa%20b.pem&cert=c.pem&key=k.pem&server_name=other&ttl=5"
    assert tls_of_url(url) == Tls(Path("/a b.pem"), Path("c.pem"), Path("k.pem"), server_name="other")
    assert tls_from("mqtts", {"verify": "No"}) == Tls(verify=False)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"key": "k.pem"}, "^key: a key without a certificate"),
        ({"ca": "ca.pem", "verify": "no"}, "^ca: has no effect with verify=no"),
        ({"verify": "perhaps"}, "^verify: 'perhaps' is neither yes nor no"),
        ({"ca": ""}, "^ca: is empty"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        tls_from("amqps", options)


def test_an_invalid_file_is_named_with_its_option(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "lab")
    certificate, key = authority.sign("one")
    _, other_key = authority.sign("two")
    locked = tmp_path / "locked.key"
    locked.write_bytes(pem_of(ec.generate_private_key(ec.SECP256R1()), b"passphrase"))
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("not a certificate")
    mistakes = {
        Tls(ca=missing): f"ca: {missing} cannot be read: No such file",
        Tls(ca=tmp_path): f"ca: {tmp_path} cannot be read: Is a directory",
        Tls(ca=text): f"ca: {text} contains no PEM certificate",
        Tls(certificate=missing): f"cert: {missing} cannot be read",
        Tls(certificate=certificate, key=missing): f"key: {missing} cannot be read",
        Tls(
            certificate=certificate, key=text
        ): f"cert: {certificate} and {text} contain no PEM certificate with its key",
        Tls(certificate=certificate): f"cert: {certificate} and {certificate} contain no PEM certificate with its key",
        Tls(certificate=certificate, key=other_key): f"key: {other_key} does not belong to",
        Tls(certificate=certificate, key=locked): f"key: {locked} is protected by a passphrase",
    }
    for tls, complaint in mistakes.items():
        with pytest.raises(ConfigError) as caught:
            connect("127.0.0.1", 9, tls=tls)  # nothing listens there: the error precedes the connection
        assert str(caught.value).startswith(complaint)
    client_context(Tls(ca=authority.file, certificate=certificate, key=key))
