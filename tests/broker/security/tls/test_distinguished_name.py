"""The name of a certificate's subject, as Java 17 writes it."""

from __future__ import annotations

import pytest

from broker.security.tls.der import DerError
from broker.security.tls.distinguished_name import name_text
from tests.broker.security.tls.der_writer import (
    IA5,
    attribute,
    name,
)

CN, C, L, ST, STREET, ORG, OU = (f"2.5.4.{number}" for number in (3, 6, 7, 8, 9, 10, 11))
UID, DC = "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25"
EMAIL = "1.2.840.113549.1.9.1"
SURNAME, SERIAL, TITLE, GIVEN, DN_QUALIFIER, POSTAL = "2.5.4.4", "2.5.4.5", "2.5.4.12", "2.5.4.42", "2.5.4.46", "2.5.4.17"
LONG_NUMBER = "1.3.6.1.4.1.311.60.2.1.3"


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
