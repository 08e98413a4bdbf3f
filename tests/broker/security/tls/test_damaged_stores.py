"""Stores that are cut off or altered anywhere, and certificates: an error of the right kind, never another."""

from __future__ import annotations

import random

import pytest

from broker.security.tls import jks, pkcs12
from broker.security.tls.certificate import parse
from broker.security.tls.der import DerError
from broker.security.tls.jks import StoreError
from broker.security.tls.pem import PemError, certificates_of
from tests.broker.security.tls.stores import FILES, STORE_PASSWORD, needs_cryptography, text


def test_jks_that_is_cut_off_anywhere_is_refused() -> None:
    whole = (FILES / "server.jks").read_bytes()

    for size in range(0, len(whole), 7):
        with pytest.raises(StoreError):
            jks.read(whole[:size], STORE_PASSWORD)
        with pytest.raises(StoreError):
            jks.read(whole[:size], None) if size < len(whole) - 40 else jks.read(b"", None)


def test_altered_jks_is_refused_or_read_without_its_digest() -> None:
    whole = (FILES / "server.jks").read_bytes()
    chance = random.Random(1)

    for _ in range(300):
        altered = alter(whole, chance)
        with pytest.raises(StoreError):
            jks.read(altered, STORE_PASSWORD)
        try:
            keys = jks.read(altered, None).keys
            jks.unprotect(keys[0].protected_key, "key-secret") if keys else None
        except StoreError:
            pass  # it is an error of this kind, or none


@needs_cryptography
@pytest.mark.parametrize("name", ["server.p12", "trust.p12", "bundle.p12"])
def test_altered_pkcs12_is_refused(name: str) -> None:
    """Its digest covers all but the outermost structure."""
    whole = (FILES / name).read_bytes()
    chance = random.Random(1)
    refused = 0

    for _ in range(40):
        try:
            pkcs12.read(alter(whole, chance), STORE_PASSWORD)
        except StoreError:
            refused += 1
    for size in range(0, len(whole), 11):
        with pytest.raises(StoreError):
            pkcs12.read(whole[:size], STORE_PASSWORD)

    assert refused > 35


@pytest.mark.parametrize("name", ["server.pem", "client.pem", "rsa.pem"])
def test_altered_certificate_is_read_or_refused(name: str) -> None:
    whole = certificates_of(text(name))[0]
    chance = random.Random(1)

    for _ in range(500):
        try:
            assert parse(alter(whole, chance)).subject_text
        except DerError:
            pass  # it is an error of this kind, or none
    for size in range(len(whole)):
        with pytest.raises(DerError):
            parse(whole[:size])


@pytest.mark.parametrize(
    ("pem", "why"),
    [
        ("", "At least one certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n", "a CERTIFICATE has no end"),
        ("-----BEGIN CERTIFICATE-----\nhush!\n-----END CERTIFICATE-----", "a CERTIFICATE is not base64"),
        ("-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----", "a CERTIFICATE is not base64"),
        ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----", "openssl pkcs8 -topk8"),
    ],
)
def test_pem_that_is_none_is_refused(pem: str, why: str) -> None:
    with pytest.raises(PemError) as caught:
        certificates_of(pem)

    assert why in str(caught.value)
    assert "hush" not in str(caught.value)


def alter(data: bytes, chance: random.Random) -> bytes:
    altered = bytearray(data)
    altered[chance.randrange(len(altered))] ^= 1 << chance.randrange(8)
    return bytes(altered)
