"""Where does the certificate of an instance come from?

From a short-lived authority: it signs one certificate for the system and one for its clients, and its own key is never
written anywhere. Also puts certificates into the PKCS 12 stores that Java reads.
Produces bytes; writes no file.
"""

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from crescendo.model.errors import ConfigError

_VALID = timedelta(days=365)
_SKEW = timedelta(days=1)  # for clients whose clock is behind ours


class CertificatePair(NamedTuple):
    """A certificate with its chain, and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs a few certificates; its key is kept in memory only."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name("Crescendo authority of one instance")
        own = self._draft(self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        own = own.add_extension(_usage(handshakes=False), critical=True)
        self.certificate = self._sign(own)

    def server(self, *hosts: str) -> CertificatePair:
        """A certificate for a system at these addresses and host names."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._pair("Crescendo system", ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self) -> CertificatePair:
        return self._pair("Crescendo client", ExtendedKeyUsageOID.CLIENT_AUTH)

    def _pair(self, name: str, purpose: ObjectIdentifier, *more: x509.ExtensionType) -> CertificatePair:
        key = ec.generate_private_key(ec.SECP256R1())
        draft = self._draft(_common_name(name), key.public_key())
        draft = draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        draft = draft.add_extension(_usage(handshakes=True), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension in (x509.ExtendedKeyUsage([purpose]), issuer, *more):
            draft = draft.add_extension(extension, critical=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return CertificatePair(self._sign(draft), secret)

    def _draft(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )

    def _sign(self, draft: x509.CertificateBuilder) -> bytes:
        return draft.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def key_store(pair: CertificatePair, password: bytes) -> bytes:
    """A certificate with its chain and its key, as PKCS 12."""
    first, *chain = x509.load_pem_x509_certificates(pair.certificate)
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise ConfigError(
            "system.settings.tls.key: for a Java key store, only RSA and elliptic curve keys work; give one"
        )
    protection = serialization.BestAvailableEncryption(password)
    return pkcs12.serialize_key_and_certificates(b"system", key, first, chain or None, protection)


def trust_store(ca: bytes, password: bytes) -> bytes:
    """Certificate authorities, as the variant of PKCS 12 that Java accepts as a trust store."""
    certificates = enumerate(x509.load_pem_x509_certificates(ca))
    entries = [pkcs12.PKCS12Certificate(certificate, f"ca{number}".encode()) for number, certificate in certificates]
    return pkcs12.serialize_java_truststore(entries, serialization.BestAvailableEncryption(password))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, handshakes: bool) -> x509.KeyUsage:
    """For a key that signs handshakes, or else for one that signs certificates."""
    return x509.KeyUsage(
        digital_signature=handshakes,
        key_cert_sign=not handshakes,
        crl_sign=not handshakes,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
