"""Certificates and private keys in PEM, out of a file or a property, where line ends may have become blanks.

Source: DefaultSslEngineFactory.PemParser.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,64})-----")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


class PemError(ValueError):
    """Not PEM, or not what was expected. The message repeats nothing of the text."""


class Block(NamedTuple):
    """`label` is the words after BEGIN."""

    label: str
    der: bytes

    def __repr__(self) -> str:
        return f"Block({self.label})"


def blocks_of(text: str) -> list[Block]:
    """All blocks; text around them is skipped. Raises PemError."""
    blocks = []
    position = 0
    while found := _BEGIN.search(text, position):
        label = found[1]
        end = text.find(f"-----END {label}-----", found.end())
        if end < 0:
            raise PemError(f"a {label} has no end")
        body = text[found.end() : end]
        if "Proc-Type:" in body:
            raise PemError(f"the {label} is encrypted in OpenSSL's old way: write it as PKCS8 with `openssl pkcs8 -topk8`")
        if not _BASE64.fullmatch(body):
            raise PemError(f"a {label} is not base64")
        try:
            blocks.append(Block(label, base64.b64decode("".join(body.split()), validate=True)))
        except binascii.Error as e:
            raise PemError(f"a {label} is not base64") from e
        position = end
    return blocks


def certificates_of(text: str) -> tuple[bytes, ...]:
    """The DER of each certificate, in order, at least one. Raises PemError."""
    certificates = tuple(block.der for block in blocks_of(text) if block.label in ("CERTIFICATE", "X509 CERTIFICATE"))
    if not certificates:
        raise PemError("At least one certificate expected, but none found")
    return certificates


def private_key_of(text: str) -> Block:
    """The only private key. Raises PemError."""
    keys = [block for block in blocks_of(text) if block.label.endswith("PRIVATE KEY")]
    if not keys:
        raise PemError("Private key not provided")
    if len(keys) > 1:
        raise PemError(f"Expected one private key, but found {len(keys)}")
    return keys[0]


def write(blocks: list[Block]) -> bytes:
    """PEM as OpenSSL reads it."""
    lines = []
    for block in blocks:
        text = base64.b64encode(block.der).decode()
        lines += [f"-----BEGIN {block.label}-----", *(text[start : start + 64] for start in range(0, len(text), 64))]
        lines.append(f"-----END {block.label}-----")
    return ("\n".join(lines) + "\n").encode()
