"""PKCS12 files: private keys with their certificates, and certificates that are trusted by Oracle's attribute.

The structure is read here, because cryptography does not show the attribute. As in Java, a certificate without it is not trusted, so that a
trust store made by openssl is empty. Contents are decrypted with the package cryptography, which is imported by the first file that needs
it (0.2 s, 13 MB). Private keys are left encrypted: OpenSSL opens them.

Source: RFC 7292; sun.security.pkcs12.PKCS12KeyStore.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from broker.security.tls import pkcs12_ciphers
from broker.security.tls.certificate import Certificate, chain_of
from broker.security.tls.certificate import parse as parse_certificate
from broker.security.tls.der import (
    INTEGER,
    OCTET_STRING,
    SEQUENCE,
    SET,
    DerError,
    Element,
    children_of,
    content_of,
    object_identifier,
    read_one,
)
from broker.security.tls.jks import PasswordError, StoreError
from broker.security.tls.pem import Block

_DATA, _ENCRYPTED_DATA = "1.2.840.113549.1.7.1", "1.2.840.113549.1.7.6"
_BAGS = "1.2.840.113549.1.12.10.1"
_KEY_BAG, _SHROUDED_KEY_BAG, _CERTIFICATE_BAG = f"{_BAGS}.1", f"{_BAGS}.2", f"{_BAGS}.3"
_X509_CERTIFICATE = "1.2.840.113549.1.9.22.1"
_LOCAL_KEY_ID = "1.2.840.113549.1.9.21"
_TRUSTED_KEY_USAGE = "2.16.840.1.113894.746875.1.1"
_CONTEXT_0, _IMPLICIT_0 = 0xA0, 0x80


class Pkcs12Key(NamedTuple):
    """`block` is PKCS8, encrypted or not, as PEM labels it. The chain begins with the key's own certificate."""

    block: Block
    chain: tuple[bytes, ...]


class Pkcs12Store(NamedTuple):
    """`untrusted_count` counts the certificates that belong to no key and have no attribute that makes them trusted."""

    keys: tuple[Pkcs12Key, ...]
    trusted: tuple[bytes, ...]
    untrusted_count: int


class _Bag(NamedTuple):
    """One SafeBag; a certificate's `block` has the label CERTIFICATE."""

    block: Block
    key_id: bytes | None
    is_trusted: bool


def read(data: bytes, password: str | None) -> Pkcs12Store:
    """Raises StoreError; without a password a store whose contents are encrypted is refused, and the digest is not checked."""
    try:
        return _arrange(_bags(data, password))
    except DerError as e:
        raise StoreError("not a PKCS12 file in DER: `keytool -importkeystore` writes one") from e


def _bags(data: bytes, password: str | None) -> list[_Bag]:
    version, safe, *mac = children_of(read_one(data), SEQUENCE, 2)
    if version.tag != INTEGER or version.content != b"\x03":
        raise StoreError("not a PKCS12 file of version 3")
    kind, content = _content_info(safe)
    if kind != _DATA:
        raise StoreError("the PKCS12 file is signed by a key, which is not supported")
    contents = content_of(content, OCTET_STRING)
    if mac and password is not None:
        _check_mac(mac[0], contents, password)
    bags: list[_Bag] = []
    for info in children_of(read_one(contents), SEQUENCE):
        kind, content = _content_info(info)
        if kind == _DATA:
            safe_contents = content_of(content, OCTET_STRING)
        elif kind == _ENCRYPTED_DATA:
            safe_contents = _decrypt(content, password)
        else:
            raise StoreError("a part of the PKCS12 file is neither plain nor encrypted by the password")
        bags += [bag for element in children_of(read_one(safe_contents), SEQUENCE) if (bag := _bag(element)) is not None]
    return bags


def _content_info(element: Element) -> tuple[str, Element]:
    identifier, content = children_of(element, SEQUENCE, 2)[:2]
    return object_identifier(identifier), read_one(content_of(content, _CONTEXT_0))


def _check_mac(mac: Element, contents: bytes, password: str) -> None:
    digest_info, salt, *iterations = children_of(mac, SEQUENCE, 2)
    algorithm, digest = children_of(digest_info, SEQUENCE, 2)[:2]
    hash_name = pkcs12_ciphers.hash_name(object_identifier(children_of(algorithm, SEQUENCE, 1)[0]))
    count = int.from_bytes(content_of(iterations[0], INTEGER), "big") if iterations else 1
    key = pkcs12_ciphers.derive(hash_name, password, content_of(salt, OCTET_STRING), count, pkcs12_ciphers.FOR_MAC)
    if not hmac.compare_digest(hmac.digest(key, contents, hash_name), content_of(digest, OCTET_STRING)):
        raise PasswordError("the password does not fit, or the file was altered")


def _decrypt(encrypted_data: Element, password: str | None) -> bytes:
    if password is None:
        raise PasswordError("the certificates are encrypted, and there is no password")
    _, content_info = children_of(encrypted_data, SEQUENCE, 2)[:2]
    _, algorithm, content = children_of(content_info, SEQUENCE, 3)[:3]
    return pkcs12_ciphers.decrypt(algorithm, content_of(content, _IMPLICIT_0), password)


def _bag(element: Element) -> _Bag | None:
    """None for what is neither a private key nor an X.509 certificate."""
    identifier, wrapped, *rest = children_of(element, SEQUENCE, 2)
    kind, value = object_identifier(identifier), read_one(content_of(wrapped, _CONTEXT_0))
    attributes = _attributes(rest[0]) if rest else {}
    key_id = attributes.get(_LOCAL_KEY_ID)
    if kind == _KEY_BAG:
        return _Bag(Block("PRIVATE KEY", value.encoded), key_id, False)
    if kind == _SHROUDED_KEY_BAG:
        return _Bag(Block("ENCRYPTED PRIVATE KEY", value.encoded), key_id, False)
    if kind != _CERTIFICATE_BAG:
        return None
    certificate_type, certificate = children_of(value, SEQUENCE, 2)[:2]
    if object_identifier(certificate_type) != _X509_CERTIFICATE:
        return None
    der = content_of(read_one(content_of(certificate, _CONTEXT_0)), OCTET_STRING)
    return _Bag(Block("CERTIFICATE", der), key_id, _TRUSTED_KEY_USAGE in attributes)


def _attributes(element: Element) -> dict[str, bytes]:
    """The encoded values by attribute."""
    pairs = (children_of(attribute, SEQUENCE, 2) for attribute in children_of(element, SET))
    return {object_identifier(identifier): values.encoded for identifier, values, *_ in pairs}


def _arrange(bags: list[_Bag]) -> Pkcs12Store:
    certificates = [(bag, parse_certificate(bag.block.der)) for bag in bags if bag.block.label == "CERTIFICATE"]
    keys = []
    used: set[bytes] = set()
    for bag in bags:
        if bag.block.label == "CERTIFICATE":
            continue
        chain = _chain(bag, certificates)
        used.update(chain)
        keys.append(Pkcs12Key(bag.block, chain))
    trusted = tuple(bag.block.der for bag, _ in certificates if bag.is_trusted)
    others = [bag for bag, _ in certificates if not bag.is_trusted and bag.block.der not in used]
    return Pkcs12Store(tuple(keys), trusted, len(others))


def _chain(key: _Bag, certificates: list[tuple[_Bag, Certificate]]) -> tuple[bytes, ...]:
    """By the key's id, as in Java; the issuers by their names."""
    leaf = next((certificate for bag, certificate in certificates if bag.key_id is not None and bag.key_id == key.key_id), None)
    return () if leaf is None else tuple(each.der for each in chain_of(leaf, [certificate for _, certificate in certificates]))
