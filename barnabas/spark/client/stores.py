"""Key stores and trust stores in PKCS12, which Java's keytool writes since Java 9, also where the type is called JKS.

What Java would not trust, a certificate without Oracle's attribute, is trusted here: whoever names a file as trust store means it.
Java's own old format, JKS, is refused with the command that converts it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

JKS_MAGIC = b"\xfe\xed\xfe\xed"
STORE_BYTES_MAX = 1 << 20
CONVERSION = "keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12"


class StoreError(Exception):
    """A store that cannot be used: `str()` says why, and repeats nothing of it."""


def trusted_certificates(path: str, password: str) -> bytes:
    """In DER, one after another; not that of a key that the store has too. Raises StoreError, OSError."""
    from cryptography.hazmat.primitives.serialization import Encoding

    found = _read(path, password).additional_certs
    if not found:
        raise StoreError("has no certificates besides that of a key")
    return b"".join(each.certificate.public_bytes(Encoding.DER) for each in found)


def key_and_certificates(path: str, password: str) -> bytes:
    """The private key, not encrypted, its certificate and those of its issuers, in PEM. Raises StoreError, OSError."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _read(path, password)
    if store.key is None or store.cert is None:
        raise StoreError("has no private key with its certificate")
    key: bytes = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key + b"".join(each.certificate.public_bytes(Encoding.PEM) for each in (store.cert, *store.additional_certs))


def _read(path: str, password: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    with Path(path).open("rb") as file:
        data = file.read(STORE_BYTES_MAX)
    if data.startswith(JKS_MAGIC):
        raise StoreError(f"is in Java's old format JKS: `{CONVERSION}`")
    try:
        return pkcs12.load_pkcs12(data, password.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise StoreError("is no PKCS12, its encryption is too old, or the password does not fit") from None
