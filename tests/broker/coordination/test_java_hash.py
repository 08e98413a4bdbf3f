"""The hash of group ids is Java's, whatever their length, and remembers no long ones."""

import random
import tracemalloc

import pytest

from broker.coordination.java_hash import CACHED_LENGTH_MAX, positive_java_hash


def _plain_hash(text: str) -> int:
    """The definition, one unit after the other."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFFFFFF
    return value if value < 0x80000000 else (0x100000000 - value) % 0x80000000


def test_known_hashes():
    # From Java 17; the last is Integer.MIN_VALUE there.
    assert [positive_java_hash(text) for text in ("", "a", "polygenelubricants")] == [0, 97, 0]


@pytest.mark.parametrize("letters", ["aZ0-._", "äöü", "€\uffff\u0000", "😀x", "\ud800\udfff"])
def test_every_alphabet_hashes_as_defined(letters: str):
    random_source = random.Random(1)
    for length in (1, CACHED_LENGTH_MAX, CACHED_LENGTH_MAX + 1):
        text = "".join(random_source.choice(letters) for _ in range(length))

        assert positive_java_hash(text) == _plain_hash(text)


def test_long_ids_are_not_remembered():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(200):
            positive_java_hash(f"{number:03}" + "k" * CACHED_LENGTH_MAX)

        kept_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert kept_bytes < 200 * CACHED_LENGTH_MAX / 2
