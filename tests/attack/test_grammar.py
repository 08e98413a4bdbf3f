"""The grammar of the attack's requests and the codec are written apart; what the one makes the other reads."""

from __future__ import annotations

import random

import pytest

from protocol import codec
from protocol.apis import APIS, Api
from protocol.errors import DecodeError
from tests.attack.grammar import Grammar, Part
from tests.attack.mutation_attacks import Mutator

WORDS = ("topic", "group")
NOW_MS = 1_750_000_000_000


def _grammar(seed: int) -> Grammar:
    return Grammar(random.Random(seed), WORDS, [bytes(range(16))], [b"batch"])


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_codec_reads_every_request_to_its_end(api: Api) -> None:
    grammar = _grammar(7)
    for version in range(api.min_version, api.max_version + 1):
        for _ in range(30):
            pieces = grammar.request(api.request_class, version)
            body = b"".join(piece.data for piece in pieces)

            assert codec.decode(api.request_class, version, body)[1] == len(body)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_number_keeps_its_bytes_when_it_is_given_its_own_value(api: Api) -> None:
    for version in (api.min_version, api.max_version):
        for piece in _grammar(8).request(api.request_class, version):
            if piece.part in (Part.LENGTH, Part.COUNT, Part.TAGS):
                assert piece.with_value(piece.value) == piece


def test_the_same_seed_makes_the_same_requests() -> None:
    first, second = (Mutator(random.Random(9), [bytes(16)], NOW_MS) for _ in range(2))

    assert [first.next_frame() for _ in range(200)] == [second.next_frame() for _ in range(200)]


def test_most_mutated_requests_are_refused_and_a_part_is_not() -> None:
    mutator = Mutator(random.Random(10), [bytes(16)], NOW_MS)
    refused = 0
    for _ in range(1000):
        frame = mutator.next_frame()
        key, version = int.from_bytes(frame[4:6], signed=True), int.from_bytes(frame[6:8], signed=True)
        try:
            api = APIS[key]
            client_id_size = int.from_bytes(frame[12:14], signed=True)
            position = 14 + max(client_id_size, 0) + (api.request_header_version(version) >= 2)
            codec.decode(api.request_class, version, frame, position)
        except (KeyError, DecodeError, ValueError):
            refused += 1
    assert 200 < refused < 800
