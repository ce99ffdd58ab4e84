"""Where does the certificate of an instance come from?

From an authority that lives for a moment: it signs one certificate for the system and one for its clients, both for the
loopback interface, and its own key is never written anywhere. Also puts certificates into the stores that Java reads.
Makes bytes; writes no file.
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
_SKEW = timedelta(days=1)  # for clocks that are behind ours


class CertificatePair(NamedTuple):
    """A certificate with its chain, and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """One that signs a few certificates and is then forgotten."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("Crescendo authority of one instance")
        own = self._draft(self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        own = own.add_extension(_usage(signs=False), critical=True)
        self.certificate = self._sign(own)

    def server(self, address: str, name: str) -> CertificatePair:
        """For a system at this address and host name."""
        hosts = [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName(name)]
        return self._pair("Crescendo system", ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(hosts))

    def client(self) -> CertificatePair:
        return self._pair("Crescendo client", ExtendedKeyUsageOID.CLIENT_AUTH)

    def _pair(self, name: str, purpose: ObjectIdentifier, *more: x509.ExtensionType) -> CertificatePair:
        key = ec.generate_private_key(ec.SECP256R1())
        draft = self._draft(_named(name), key.public_key())
        draft = draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        draft = draft.add_extension(_usage(signs=True), critical=True)
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
        raise ConfigError("system.settings.tls.key: Java takes RSA keys and those of elliptic curves from us; give one")
    protection = serialization.BestAvailableEncryption(password)
    return pkcs12.serialize_key_and_certificates(b"system", key, first, chain or None, protection)


def trust_store(ca: bytes, password: bytes) -> bytes:
    """Authorities, as the sort of PKCS 12 in which Java looks for them."""
    found = enumerate(x509.load_pem_x509_certificates(ca))
    entries = [pkcs12.PKCS12Certificate(certificate, f"ca{number}".encode()) for number, certificate in found]
    return pkcs12.serialize_java_truststore(entries, serialization.BestAvailableEncryption(password))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    """Of a key that signs handshakes, or of one that signs certificates."""
    return x509.KeyUsage(
        digital_signature=signs,
        key_cert_sign=not signs,
        crl_sign=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
