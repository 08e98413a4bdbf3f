"""RC2 (RFC 2268), to read the certificates in PKCS12 files of older Java: no library that we use has it with 40 bits.

It protects nothing here: those certificates are public, and the file's digest tells whether they were altered. A block takes 25 µs.
"""

from __future__ import annotations

from broker.security.tls.jks import StoreError

BLOCK_SIZE = 8
CONTENT_SIZE_MAX = 256 * 1024
"""Bytes: as many as Java's own store of all public authorities, and 0.8 s."""

_PERMUTATION = bytes.fromhex(
    "d978f9c419ddb5ed28e9fd794aa0d89dc67e37832b76538e624c6488448bfba2179a59f587b34f1361456d8d09817d32bd8f40eb86b77b0bf09521225c6b4e82"
    "54d66593ce60b21c7356c014a78cf1dc1275ca1f3bbee4d1423dd430a33cb6266fbf0eda4669075727f21d9bbc944303f811c7f690ef3ee706c3d52fc8661ed7"
    "08e8eade8052eef784aa72ac354d6a2a961ad2715a1549744b9fd05e0418a4ecc2e0416e0f51cbcc2491af50a1f47039997c3a8523b8b47afc02365b25559731"
    "2d5dfa98e38a92ae05df2910676cbac9d300e6cfe19ea82c6316013f58e289a90d38341bab33ffb0bb480c5fb9b1cd2ec5f3db47e5a59c770aa62068fe7fc1ad"
)
_SHIFTS = (1, 2, 3, 5)


class Rc2:
    """One key. `effective_bits` is the strength; PKCS12 has as many as the key."""

    def __init__(self, key: bytes, effective_bits: int) -> None:
        expanded = bytearray(key)
        size, effective_size = len(key), (effective_bits + 7) // 8
        for index in range(size, 128):
            expanded.append(_PERMUTATION[(expanded[index - 1] + expanded[index - size]) & 0xFF])
        expanded[128 - effective_size] = _PERMUTATION[expanded[128 - effective_size] & (0xFF >> (8 * effective_size - effective_bits))]
        for index in range(127 - effective_size, -1, -1):
            expanded[index] = _PERMUTATION[expanded[index + 1] ^ expanded[index + effective_size]]
        self._keys = [int.from_bytes(expanded[start : start + 2], "little") for start in range(0, 128, 2)]

    def decrypt_block(self, block: bytes) -> bytes:
        words = [int.from_bytes(block[start : start + 2], "little") for start in range(0, BLOCK_SIZE, 2)]
        for index in range(63, -1, -1):
            if index in (43, 19):  # the mashing rounds come after five and after eleven rounds
                for word in (3, 2, 1, 0):
                    words[word] = (words[word] - self._keys[words[word - 1] & 63]) & 0xFFFF
            word = index & 3
            shift = _SHIFTS[word]
            rotated = (words[word] >> shift | words[word] << (16 - shift)) & 0xFFFF
            before, second, third = words[word - 1], words[word - 2], words[word - 3]
            words[word] = (rotated - self._keys[index] - (before & second) - (~before & third)) & 0xFFFF
        return b"".join(word.to_bytes(2, "little") for word in words)


def decrypt_cbc(key: bytes, vector: bytes, content: bytes) -> bytes:
    """The content with its padding. Raises StoreError for one that is too long."""
    if len(content) > CONTENT_SIZE_MAX:
        raise StoreError(f"more than {CONTENT_SIZE_MAX} bytes are encrypted with RC2")
    cipher = Rc2(key, 8 * len(key))
    blocks = [content[start : start + BLOCK_SIZE] for start in range(0, len(content), BLOCK_SIZE)]
    plain = [
        int.from_bytes(cipher.decrypt_block(block), "big") ^ int.from_bytes(before, "big")
        for before, block in zip((vector, *blocks), blocks, strict=False)
    ]
    return b"".join(block.to_bytes(BLOCK_SIZE, "big") for block in plain)
