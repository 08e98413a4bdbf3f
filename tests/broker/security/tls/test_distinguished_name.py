"""The name of a certificate's subject, as Java 17 writes it."""

from __future__ import annotations

import pytest

from broker.security.tls.der import DerError
from broker.security.tls.distinguished_name import name_text
from tests.broker.security.java_answers import java_names
from tests.broker.security.tls.der_writer import (
    BITS,
    BMP,
    GENERAL,
    IA5,
    NUMERIC,
    OCTETS,
    PRINTABLE,
    T61,
    UNIVERSAL,
    VISIBLE,
    attribute,
    name,
    tlv,
)
from tests.support.kafka import missing_java
from tests.support.requirements import needs

CN, C, L, ST, STREET, ORG, OU = (f"2.5.4.{number}" for number in (3, 6, 7, 8, 9, 10, 11))
UID, DC = "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25"
EMAIL = "1.2.840.113549.1.9.1"
SURNAME, SERIAL, TITLE, GIVEN, DN_QUALIFIER, POSTAL = "2.5.4.4", "2.5.4.5", "2.5.4.12", "2.5.4.42", "2.5.4.46", "2.5.4.17"
LONG_NUMBER = "1.3.6.1.4.1.311.60.2.1.3"

ODD_VALUES = [
    "", " ", "  ", " a", "a ", "  a  b  ", "\ra\r", "\ta\t", "\na\n", "a,b", "a=b", "a+b", "a<b>c", "#a", "a#b", "a;b", 'a"b', "a\\b", "\\",
    ",", " ,", "# ", "a\0b", "\0", "a\x01b", "\x7f", "grüße", "日本語", "😀", "e\u0301", "\u00a0a\u00a0", "\u2028", "*.example.org",
    "a'b()-./:?", "@!$%&", "a" * 300,
]  # fmt: skip

MALFORMED = [
    b"\xed\xa0\x80x", b"\xed\xa0x", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80x", b"\xc0\x80x", b"\xc1\xbfx", b"\xe0\x80\x80x", b"\xe0\x9f\xbfx",
    b"\xf0\x8f\xbf\xbfx", b"\xf8\x88\x80\x80\x80x", b"\xf0\x9f\x98x", b"\xf0\x9f\x98", b"\xe2\x82x", b"\x80\x80", b"\xe2\x28\xa1",
]  # fmt: skip

NAMES = [
    name(),
    name(attribute(CN, "localhost")),
    name(attribute(C, "DE", PRINTABLE), attribute(ORG, "Org"), attribute(CN, "kafka")),
    name(attribute(CN, "first"), attribute(CN, "second")),
    name([attribute(CN, "a"), attribute(OU, "b")], attribute(ORG, "c")),
    name([attribute(OU, "b"), attribute(CN, "a"), attribute(UID, "u")]),
    name(*(attribute(kind, kind) for kind in (CN, C, L, ST, STREET, ORG, OU, UID, DC))),
    name(*(attribute(kind, "x") for kind in (SURNAME, SERIAL, TITLE, GIVEN, DN_QUALIFIER, POSTAL, LONG_NUMBER))),
    name(attribute(DC, "org", IA5), attribute(DC, "example", IA5), attribute(CN, "kafka")),
    name(attribute(EMAIL, "a@example.org", IA5), attribute(CN, "kafka")),
    name(attribute(EMAIL, "a@example.org")),
    *(name(attribute(CN, "kafka, 1", tag)) for tag in (PRINTABLE, T61, IA5, GENERAL, UNIVERSAL, NUMERIC, VISIBLE, OCTETS, BITS)),
    name(attribute(CN, "kafka".encode("utf-16-be"), BMP)),
    name(attribute(CN, "日本".encode("utf-16-be"), BMP)),
    name(attribute(CN, "gr\xfc\xdfe".encode("latin-1"), T61)),
    name(attribute(CN, b"\xff\xfe\xc3")),
    name(attribute(CN, b"\xe2\x82")),
    *(name(attribute(CN, value)) for value in MALFORMED),
    name(attribute(CN, tlv(0x13, b"inner"), 0x30)),
    name(attribute("2.999.1", "x"), attribute("1.2.3", "y")),
    *(name(attribute(CN, value), attribute(ORG, "Org")) for value in ODD_VALUES),
]


@needs(missing_java())
def test_names_are_those_of_java() -> None:
    answers = java_names(NAMES)

    differences = {der.hex(): (name_text(der), java) for der, java in zip(NAMES, answers, strict=True) if java != name_text(der)}
    assert not differences


@pytest.mark.parametrize(
    ("der", "text"),
    [
        (name(attribute(C, "DE"), attribute(ORG, "Org"), attribute(CN, "kafka")), "CN=kafka,O=Org,C=DE"),
        (name([attribute(CN, "a"), attribute(OU, "b")], attribute(ORG, "c")), "O=c,CN=a+OU=b"),
        (name(attribute(EMAIL, "a@b", IA5), attribute(CN, "kafka")), "CN=kafka,1.2.840.113549.1.9.1=#1603614062"),
        (name(attribute(CN, ' #a,b="\\ ')), r"CN=\ \#a\,b\=\"\\\ "),
        (name(), ""),
    ],
)
def test_names_without_java(der: bytes, text: str) -> None:
    assert name_text(der) == text


def test_every_cut_name_is_refused() -> None:
    whole = name(attribute(C, "DE"), attribute(CN, "kafka" * 50))

    for size in range(len(whole)):
        with pytest.raises(DerError):
            name_text(whole[:size])
    with pytest.raises(DerError):
        name_text(whole + b"\0")
