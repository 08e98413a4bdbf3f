"""What is read of an X.509 certificate beyond what OpenSSL verifies: whose it is, until when, and the names that Kafka compares when a key
store is exchanged.

Source: RFC 5280; SslFactory.CertificateEntries for the comparison.
"""

from __future__ import annotations

import calendar
import re
from typing import NamedTuple

from broker.security.tls.der import (
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    DerError,
    Element,
    children_of,
    content_of,
    object_identifier,
    read_one,
)
from broker.security.tls.distinguished_name import name_text

_SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
_EXTENSIONS = 0xA3
_VERSION = 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_TIME = re.compile(rb"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})Z")


class Certificate(NamedTuple):
    """`issuer` and `subject` are DER. `not_after_ms` is the end by the wall clock. `alternative_names` are the DER of each."""

    der: bytes
    issuer: bytes
    subject: bytes
    not_after_ms: int
    alternative_names: frozenset[bytes]

    @property
    def subject_text(self) -> str:
        """As Java writes it: the principal's name before the mapping rules."""
        return name_text(self.subject)


def parse(der: bytes) -> Certificate:
    """Raises DerError."""
    fields = children_of(children_of(read_one(der), SEQUENCE, 3)[0], SEQUENCE, 6)
    if fields[0].tag == _VERSION:
        fields = fields[1:]
    if len(fields) < 6:
        raise DerError("too few elements")
    _, _, issuer, validity, subject, *rest = fields
    not_after_ms = _time_ms(children_of(validity, SEQUENCE, 2)[1])
    return Certificate(der, issuer.encoded, subject.encoded, not_after_ms, frozenset(_alternative_names(rest)))


def chain_of(leaf: Certificate, others: list[Certificate]) -> list[Certificate]:
    """The leaf and its issuers, as far as they are there. A certificate that signed itself ends it."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((other for other in others if other.subject == chain[-1].issuer and other not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _alternative_names(fields: list[Element]) -> list[bytes]:
    extensions = next((field for field in fields if field.tag == _EXTENSIONS), None)
    if extensions is None:
        return []
    for extension in children_of(read_one(extensions.content), SEQUENCE):
        identifier, *rest = children_of(extension, SEQUENCE, 2)
        if identifier.tag == OBJECT_IDENTIFIER and object_identifier(identifier) == _SUBJECT_ALTERNATIVE_NAME:
            names = read_one(content_of(rest[-1], OCTET_STRING))
            return [name.encoded for name in children_of(names, SEQUENCE)]
    return []


def _time_ms(element: Element) -> int:
    text = element.content
    if element.tag == _UTC_TIME:
        text = (b"19" if text[:2] >= b"50" else b"20") + text
    elif element.tag != _GENERALIZED_TIME:
        raise DerError("no time")
    found = _TIME.fullmatch(text)
    if not found:
        raise DerError("no time")
    year, month, day, hour, minute, second = (int(part) for part in found.groups())
    if not 1 <= month <= 12:
        raise DerError("no time")
    return calendar.timegm((year, month, 1, hour, minute, second)) * 1000 + (day - 1) * 86_400_000
