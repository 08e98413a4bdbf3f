"""Kafka's text form of UUIDs."""

from __future__ import annotations

import random
import uuid as standard_uuid

import pytest

from protocol.uuids import ZERO_UUID, random_uuid, random_uuid_text, uuid_from_text, uuid_to_text


def test_zero_uuid_is_22_times_a() -> None:
    assert uuid_to_text(ZERO_UUID) == "A" * 22


def test_text_is_url_safe_and_comes_back() -> None:
    uuid = bytes.fromhex("fbefbefbefbefbefbefbefbefbefbeff")

    assert uuid_from_text(uuid_to_text(uuid)) == uuid
    assert not set("+/=") & set(uuid_to_text(uuid))


@pytest.mark.parametrize("text", ["MkU3OEVBNTcwNTJENDM2Qg", "MkU3OEVBNTcwNTJENDM2Qk", "MkU3OEVBNTcwNTJENDM2Qg=="])
def test_spellings_that_kafka_takes_for_one_id_are_taken(text: str) -> None:
    """The second one is in the examples of many container images: its last character has bits that mean nothing."""
    assert uuid_from_text(text) == b"2E78EA57052D436B"


@pytest.mark.parametrize(
    "text",
    ["", "A" * 21, "A" * 23, "A" * 21 + "=", "A" * 21 + "!", "ü" * 22, "A" * 20 + "+/", "A" * 22 + "=", "A" * 22 + "===", "A" * 22 + "\n"],
)
def test_anything_else_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        uuid_from_text(text)


def test_a_uuid_of_another_size_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_to_text(b"short")


def test_random_ids_are_those_of_the_standard_library() -> None:
    for seed in range(100):
        expected = str(standard_uuid.UUID(int=random.Random(seed).getrandbits(128), version=4))
        assert random_uuid_text(random.Random(seed).getrandbits) == expected


def test_random_id_is_of_version_4_and_its_text_looks_like_no_option() -> None:
    bits = iter([0b111110 << 122, 2**128 - 1 >> 6 | 0b000001 << 122])  # the text of the first would begin with '-'

    drawn = random_uuid(lambda count: next(bits))

    assert uuid_to_text(drawn).startswith("B")
    assert standard_uuid.UUID(bytes=drawn).version == 4
    assert list(bits) == []
