"""Bytes of a hostile peer, before and after the handshake: each is a TlsError of one line, or a wait for more."""

from __future__ import annotations

import random
import ssl

import pytest

from broker.security.tls.layer import INBOUND_SIZE_MAX, TlsError, TlsLayer
from tests.broker.security.tls.pairs import Pair, read
from tests.broker.security.tls.stores import client, server

ROUNDS = 300


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return server(), client()


def test_altered_first_flight_is_refused_or_waits(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    chance = random.Random(1)
    lines = []
    for _ in range(ROUNDS):
        sender = TlsLayer(contexts[1], is_server=False, server_hostname="localhost")
        sender.handshake()
        receiver = TlsLayer(contexts[0], is_server=True)
        receiver.feed(alter(sender.take(), chance))
        try:
            assert not receiver.handshake()
        except TlsError as error:
            lines.append(str(error))

    assert len(lines) > ROUNDS // 10
    assert not [line for line in lines if "\n" in line or not line.startswith("TLS handshake failed: ")]


def test_altered_record_never_gives_other_data(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    chance = random.Random(2)
    refused = 0
    for _ in range(ROUNDS // 3):
        pair = Pair(*contexts)
        pair.handshake()
        pair.client.write(b"payload" * 100)
        pair.server.feed(alter(pair.client.take(), chance))
        try:
            assert read(pair.server) == b""
        except TlsError:
            refused += 1

    assert refused > ROUNDS // 6


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01", b"\x15\x03\x01", b"\x14\x03\x03\0\1\1"])
def test_random_bytes_are_refused_or_wait(contexts: tuple[ssl.SSLContext, ssl.SSLContext], first: bytes) -> None:
    chance = random.Random(3)
    layers = [TlsLayer(contexts[0], is_server=True) for _ in range(20)]

    for layer in layers:
        layer.feed(first + chance.randbytes(INBOUND_SIZE_MAX - len(first)))
        with pytest.raises(TlsError):
            layer.handshake()
            layer.handshake()


def test_record_that_is_announced_takes_no_memory_before_it_comes(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """A handshake message may announce 16 MB, and come in small pieces.
    CVE-2026-50734 and CVE-2026-53917 of ActiveMQ, which allocated before a login."""
    layer = TlsLayer(contexts[0], is_server=True)
    layer.feed(b"\x16\x03\x01\x40\0" + b"\1\xff\xff\xff" + bytes(16_380))

    with pytest.raises(TlsError):
        layer.handshake()


def alter(data: bytes, chance: random.Random) -> bytes:
    altered = bytearray(data)
    altered[chance.randrange(len(altered))] ^= 1 << chance.randrange(8)
    return bytes(altered)
