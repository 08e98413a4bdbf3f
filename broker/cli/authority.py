"""A certificate authority of our own, with keys of P-256: for `barnabas secure` and for secured brokers of tests.

`cryptography` takes 0.2 s and 13 MB to import: only these import this module.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3_650
CERTIFICATE_DAYS = 825
"""What Apple's and other clients accept at most."""
CLOCK_SKEW = datetime.timedelta(hours=1)
"""A certificate holds from so long ago: clocks differ."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class KeyPair(NamedTuple):
    """In PEM. The private key is PKCS 8, not encrypted."""

    key: str
    certificate: str

    def __repr__(self) -> str:
        return "KeyPair()"  # the key may be in no log and no traceback


class Authority:
    """Signs certificates. `pair` has its own. Times are by the wall clock, in ms."""

    def __init__(self, name: str, now_ms: int) -> None:
        self._now = datetime.datetime.fromtimestamp(now_ms // 1000, datetime.UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        public = self._key.public_key()
        builder = _builder(self._name, self._name, public, self._now, AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(is_authority=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        self.pair = _pair(self._key, builder.sign(self._key, hashes.SHA256()))

    def sign(self, name: str, hosts: Iterable[str], *, is_for_client: bool = False) -> KeyPair:
        """A new key and its certificate for a server on `hosts`, names or addresses, which with `is_for_client` may also connect to
        others. CN is `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key()
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if is_for_client else [])]
        builder = _builder(_name(name), self._name, public, self._now, CERTIFICATE_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(is_authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)]), critical=False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        return _pair(key, builder.sign(self._key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyPair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(private.decode(), certificate.public_bytes(pem).decode())
