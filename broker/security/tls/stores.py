"""The keys and certificates that the ssl.* properties name, out of PEM, PKCS12 and JKS.

Which properties go together is Kafka's rule, in its words. As in Java, the types JKS and PKCS12 each read both formats: keytool writes
PKCS12 since Java 9, and JKS is Kafka's default type. Every error is one line that names the property, and repeats no byte of a file.

Source: DefaultSslEngineFactory.createKeystore, createTruststore, PemStore; java.security.KeyStore.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from broker.security.tls import jks, pem, pkcs12
from broker.security.tls.certificate import Certificate
from broker.security.tls.certificate import parse as parse_certificate
from broker.security.tls.der import DerError
from broker.security.tls.files import StoreFileError
from broker.security.tls.jks import JCEKS_MAGIC, MAGIC, PasswordError, StoreError
from broker.security.tls.pem import Block, PemError
from broker.security.tls.settings import TlsSettings

ReadFile = Callable[[str], bytes]
"""The content of a small regular file by its path (`files.read_store_file`). Raises StoreFileError."""

_Loaded = TypeVar("_Loaded")

PEM = "PEM"
JAVA_TYPES = ("JKS", "PKCS12")

NO_TRUSTED_CERTIFICATE = (
    "has no trusted certificate: as in Java, one of PKCS12 counts only with Oracle's attribute, which `keytool -importcert` writes, and "
    "openssl only with `-jdktrust anyExtendedKeyUsage`"
)


class KeyMaterial(NamedTuple):
    """A private key as PEM's block, the password that opens it, and its certificates, its own first."""

    key: Block
    key_password: str | None
    chain: tuple[Certificate, ...]

    def __repr__(self) -> str:
        return f"KeyMaterial({len(self.chain)} certificates)"


def load_key(settings: TlsSettings, read_file: ReadFile) -> KeyMaterial | None:
    """None if no key store is set, which only a client may do. Raises ConfigError."""
    _check_key_properties(settings)
    if settings.keystore_key is not None:
        return _pem_key(settings, settings.keystore_key, settings.keystore_certificate_chain or "", "keystore.key")
    if settings.keystore_location is None:
        return None
    data = _read(settings, "keystore.location", settings.keystore_location, read_file)
    if settings.keystore_type == PEM:
        text = data.decode("latin-1")
        return _pem_key(settings, text, text, "keystore.location")
    password = settings.keystore_password or ""
    key_password = settings.key_password if settings.key_password is not None else password
    parse = functools.partial(_java_key, settings, data, password, key_password)
    return _checked(settings, "keystore", parse)


def load_trust(settings: TlsSettings, read_file: ReadFile) -> tuple[Certificate, ...] | None:
    """The certificates that are trusted, at least one; None if no trust store is set. Raises ConfigError."""
    _check_trust_properties(settings)
    if settings.truststore_certificates is not None:
        return _pem_trust(settings, settings.truststore_certificates, "truststore.certificates")
    if settings.truststore_location is None:
        return None
    data = _read(settings, "truststore.location", settings.truststore_location, read_file)
    if settings.truststore_type == PEM:
        return _pem_trust(settings, data.decode("latin-1"), "truststore.location")
    return _checked(settings, "truststore", functools.partial(_java_trust, settings, data))


def _check_key_properties(settings: TlsSettings) -> None:
    is_pem = settings.keystore_type == PEM
    if settings.keystore_key is not None:
        if not is_pem:
            raise settings.refusal("keystore.key", f"can be specified only for PEM, but key store type is {settings.keystore_type}.")
        if settings.keystore_certificate_chain is None:
            raise settings.refusal("keystore.certificate.chain", "SSL private key is specified, but certificate chain is not specified.")
        if settings.keystore_location is not None:
            raise settings.refusal("keystore.key", "Both SSL key store location and separate private key are specified.")
    elif settings.keystore_certificate_chain is not None:
        raise settings.refusal("keystore.key", "SSL certificate chain is specified, but private key is not specified")
    if is_pem and settings.keystore_password is not None:
        why = "SSL key store password cannot be specified with PEM format, only key password may be specified."
        raise settings.refusal("keystore.password", why)
    if settings.keystore_location is None:
        if settings.keystore_password is not None:
            raise settings.refusal("keystore.location", "SSL key store is not specified, but key store password is specified.")
    elif not is_pem and settings.keystore_password is None:
        raise settings.refusal("keystore.password", "SSL key store is specified, but key store password is not specified.")


def _check_trust_properties(settings: TlsSettings) -> None:
    is_pem = settings.truststore_type == PEM
    if settings.truststore_certificates is not None:
        if not is_pem:
            why = f"can be specified only for PEM, but trust store type is {settings.truststore_type}."
            raise settings.refusal("truststore.certificates", why)
        if settings.truststore_location is not None:
            raise settings.refusal(
                "truststore.certificates", "Both SSL trust store location and separate trust certificates are specified."
            )
    if is_pem and settings.truststore_password is not None:
        raise settings.refusal("truststore.password", "SSL trust store password cannot be specified for PEM format.")
    if settings.truststore_location is None and settings.truststore_certificates is None and settings.truststore_password is not None:
        raise settings.refusal("truststore.location", "SSL trust store is not specified, but trust store password is specified.")


def _read(settings: TlsSettings, name: str, path: str, read_file: ReadFile) -> bytes:
    try:
        return read_file(path)
    except StoreFileError as e:
        raise settings.refusal(name, f"the file {path} {e}") from e


def _pem_key(settings: TlsSettings, key_text: str, chain_text: str, name: str) -> KeyMaterial:
    chain_name = "keystore.certificate.chain" if name == "keystore.key" else name
    try:
        key = pem.private_key_of(key_text)
    except PemError as e:
        raise settings.refusal(name, str(e)) from e
    try:
        return KeyMaterial(key, settings.key_password, _parse(pem.certificates_of(chain_text)))
    except PemError as e:
        raise settings.refusal(chain_name, str(e)) from e
    except DerError as e:
        raise settings.refusal(chain_name, "a certificate is damaged") from e


def _pem_trust(settings: TlsSettings, text: str, name: str) -> tuple[Certificate, ...]:
    try:
        return _parse(pem.certificates_of(text))
    except PemError as e:
        raise settings.refusal(name, str(e)) from e
    except DerError as e:
        raise settings.refusal(name, "a certificate is damaged") from e


def _checked(settings: TlsSettings, store: str, load: Callable[[], _Loaded]) -> _Loaded:
    """What `load` returns, its failures as those of a property."""
    kind = settings.keystore_type if store == "keystore" else settings.truststore_type
    if kind not in JAVA_TYPES:
        raise settings.refusal(f"{store}.type", f"{kind} is not supported: JKS, PKCS12 and PEM are")
    try:
        return load()
    except PasswordError as e:
        raise settings.refusal(f"{store}.password", str(e)) from e
    except StoreError as e:
        raise settings.refusal(f"{store}.location", str(e)) from e
    except DerError as e:
        raise settings.refusal(f"{store}.location", "a certificate is damaged") from e
    except ModuleNotFoundError as e:
        raise settings.refusal(f"{store}.type", "PKCS12 needs the Python package cryptography: `pip install cryptography`") from e


def _java_key(settings: TlsSettings, data: bytes, password: str, key_password: str) -> KeyMaterial:
    """As Java does, of several keys one is used: here the first."""
    if data.startswith(MAGIC):
        for entry in jks.read(data, password).keys:
            try:
                key = Block("PRIVATE KEY", jks.unprotect(entry.protected_key, key_password))
            except PasswordError as e:
                raise settings.refusal("key.password", str(e)) from e
            return _key_material(key, None, entry.chain)
    else:
        _refuse_jceks(data)
        for pkcs12_key in pkcs12.read(data, password).keys:
            return _key_material(pkcs12_key.block, key_password, pkcs12_key.chain)
    raise StoreError("has no private key")


def _key_material(key: Block, password: str | None, chain: tuple[bytes, ...]) -> KeyMaterial:
    if not chain:
        raise StoreError("the private key has no certificate")
    return KeyMaterial(key, password, _parse(chain))


def _java_trust(settings: TlsSettings, data: bytes) -> tuple[Certificate, ...]:
    """Java also trusts a key's own certificate (TrustStoreUtil.getTrustedCerts)."""
    if data.startswith(MAGIC):
        store = jks.read(data, settings.truststore_password)
        found = (*store.trusted, *(entry.chain[0] for entry in store.keys if entry.chain))
    else:
        _refuse_jceks(data)
        bundle = pkcs12.read(data, settings.truststore_password)
        found = (*bundle.trusted, *(key.chain[0] for key in bundle.keys if key.chain))
    if not found:
        raise StoreError(NO_TRUSTED_CERTIFICATE)
    return _parse(found)


def _refuse_jceks(data: bytes) -> None:
    if data.startswith(JCEKS_MAGIC):
        raise StoreError("is of type JCEKS, which is not supported: write it as PKCS12 with `keytool -importkeystore`")


def _parse(certificates: tuple[bytes, ...]) -> tuple[Certificate, ...]:
    return tuple(parse_certificate(der) for der in certificates)
