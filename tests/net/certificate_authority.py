"""Certificates of every kind that a server could present, valid and invalid, for the TLS tests."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


class Authority:
    """An authority that signs every request."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._draft(self._name, self._key.public_key(), days=3)
        certificate = certificate.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, *, host: str = "127.0.0.1", days: int = 3) -> tuple[Path, Path]:
        """A certificate and its key; negative days: it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        draft = self._draft(subject, key.public_key(), days)
        draft = draft.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        certificate, secret = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        certificate.write_bytes(draft.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(pem_of(key))
        return certificate, secret

    def _draft(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * _DAY)
            .not_valid_after(now + days * _DAY)
        )


def pem_of(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    how = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
