"""A certificate authority of our own, with keys of P-256: for `barnabas secure` and for secured brokers of tests.

`cryptography` takes 0.2 s and 13 MB to import: only these import this module.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
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


class AuthorityError(ValueError):
    """A key or a certificate that cannot be used; `str()` says why, as the end of a sentence."""


class Authority:
    """Signs certificates. `pair` has its own. Times are by the wall clock, in ms."""

    def __init__(self, name: str, now_ms: int, pair: KeyPair | None = None) -> None:
        """A new one; with `pair` that one, whatever its name. Raises AuthorityError for a pair that is none."""
        self._now = datetime.datetime.fromtimestamp(now_ms // 1000, datetime.UTC)
        if pair is None:
            self._key = ec.generate_private_key(ec.SECP256R1())
            self._certificate = _authoritys_own(self._key, _name(name), self._now)
        else:
            self._key, self._certificate = _read_key(pair.key), read_certificate(pair.certificate)
            if self._certificate.public_key() != self._key.public_key():
                raise AuthorityError("are not of one pair")
        self.pair = _pair(self._key, self._certificate)

    def sign(self, name: str, hosts: Iterable[str], *, is_for_client: bool = False) -> KeyPair:
        """A new key and its certificate for a server on `hosts`, names or addresses, which with `is_for_client` may also connect to
        others. CN is `name`. It ends no later than the authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key()
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if is_for_client else [])]
        end = min(self._now + datetime.timedelta(days=CERTIFICATE_DAYS), self._certificate.not_valid_after_utc)
        builder = _builder(_name(name), self._certificate.subject, public, self._now, end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(is_authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)]), critical=False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        return _pair(key, builder.sign(self._key, hashes.SHA256()))

    def has_signed(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def renew(self, certificate: x509.Certificate, hosts: Iterable[str]) -> KeyPair:
        """A new key, and a certificate of the same name and uses, for the same hosts and these. Raises AuthorityError."""
        try:
            usages = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        except x509.ExtensionNotFound as e:
            raise AuthorityError("was not made by barnabas secure") from e
        return self.sign(
            common_name(certificate), (*hosts_of(certificate), *hosts), is_for_client=ExtendedKeyUsageOID.CLIENT_AUTH in usages
        )


def read_certificate(pem: str) -> x509.Certificate:
    """The first of the text. Raises AuthorityError."""
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError as e:
        raise AuthorityError("has no certificate in PEM") from e


def common_name(certificate: x509.Certificate) -> str:
    """The CN of its subject; "" without one."""
    return next((str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """Names and addresses for which it is. Raises AuthorityError."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as e:
        raise AuthorityError("names no hosts") from e
    return [str(name.value) for name in names]


def _read_key(pem: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise AuthorityError("has no private key in PEM without a password") from e
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AuthorityError("is no key on an elliptic curve")
    return key


def _authoritys_own(key: ec.EllipticCurvePrivateKey, name: x509.Name, now: datetime.datetime) -> x509.Certificate:
    public = key.public_key()
    builder = _builder(name, name, public, now, now + datetime.timedelta(days=AUTHORITY_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(is_authority=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    return builder.sign(key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime.datetime, end: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
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
