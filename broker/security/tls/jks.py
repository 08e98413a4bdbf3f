"""Java's own key store, JKS: certificates in the clear, private keys under Sun's SHA-1 protector, a digest over all.

    magic, version, count of entries; each: tag, alias, time, then
        1, a key: its protected PKCS8, the count of its certificates, these
        2, a trusted certificate
    SHA-1 of the password, "Mighty Aphrodite" and everything before

Source: sun.security.provider.JavaKeyStore and KeyProtector; keytool's files in the tests.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from broker.security.tls.der import OCTET_STRING, SEQUENCE, DerError, children_of, content_of, object_identifier, read_one

MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"

ENTRIES_MAX = 10_000
CHAIN_MAX = 100

_DIGEST_SIZE = 20
_WHITENER = b"Mighty Aphrodite"
_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"
_KEY_ENTRY, _TRUSTED_ENTRY = 1, 2


class StoreError(ValueError):
    """A store that cannot be used. The message repeats nothing of it."""


class PasswordError(StoreError):
    """A password does not fit."""


class KeyEntry(NamedTuple):
    """`protected_key` is an EncryptedPrivateKeyInfo; `chain` has the DER of its certificates, its own first."""

    alias: str
    protected_key: bytes
    chain: tuple[bytes, ...]


class JksStore(NamedTuple):
    keys: tuple[KeyEntry, ...]
    trusted: tuple[bytes, ...]


def read(data: bytes, password: str | None) -> JksStore:
    """Raises StoreError. Without a password the digest is not checked, as in Java."""
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password is not None:
        expected = hashlib.sha1(_utf_16(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise PasswordError("the password does not fit, or the file was altered")
    reader = _Reader(body)
    if reader.take(4) != MAGIC:
        raise StoreError("not a JKS file")
    version, count = reader.number(4), reader.number(4)
    if version not in (1, 2) or count > ENTRIES_MAX:
        raise StoreError("not a JKS file of version 1 or 2, or too many entries")
    keys, trusted = [], []
    for _ in range(count):
        tag, alias = reader.number(4), reader.text()
        reader.take(8)  # when it was made
        if tag == _KEY_ENTRY:
            key, chain_count = reader.block(), reader.number(4)
            if chain_count > CHAIN_MAX:
                raise StoreError("too many certificates of one key")
            keys.append(KeyEntry(alias, key, tuple(reader.certificate(version) for _ in range(chain_count))))
        elif tag == _TRUSTED_ENTRY:
            trusted.append(reader.certificate(version))
        else:
            raise StoreError("an entry is neither a key nor a certificate")
    return JksStore(tuple(keys), tuple(trusted))


def unprotect(protected_key: bytes, password: str) -> bytes:
    """The PKCS8 of a key entry. Raises StoreError."""
    try:
        algorithm, encrypted = children_of(read_one(protected_key), SEQUENCE, 2)[:2]
        if object_identifier(children_of(algorithm, SEQUENCE, 1)[0]) != _PROTECTOR:
            raise StoreError("the key is not protected in the way of JKS")
        data = content_of(encrypted, OCTET_STRING)
    except DerError as e:
        raise StoreError("the protected key is damaged") from e
    if len(data) < 2 * _DIGEST_SIZE:
        raise StoreError("the protected key is damaged")
    secret = _utf_16(password)
    salt, body, check = data[:_DIGEST_SIZE], data[_DIGEST_SIZE:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    stream = bytearray()
    digest = salt
    while len(stream) < len(body):
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    key = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise PasswordError("the password does not open the key")
    return key


class _Reader:
    """Java's DataInputStream over bytes that are there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise StoreError("the file is cut off")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self) -> bytes:
        return self.take(self.number(4))

    def text(self) -> str:
        (size,) = struct.unpack(">H", self.take(2))
        return self.take(size).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2 and self.text() != "X.509":
            raise StoreError("a certificate is not X.509")
        return self.block()


def _utf_16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
