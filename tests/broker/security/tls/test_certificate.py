"""What is read of certificates."""

from __future__ import annotations

import calendar

import pytest

from broker.security.tls.certificate import chain_of, parse
from broker.security.tls.der import DerError
from broker.security.tls.pem import certificates_of
from tests.broker.security.tls.der_writer import attribute, name, tlv
from tests.broker.security.tls.stores import text

COMMON_NAME = "2.5.4.3"


def make_certificate(not_after: bytes, tag: int = 0x17, subject: str = "leaf", issuer: str = "ca", version: bytes = b"") -> bytes:
    names = [name(attribute(COMMON_NAME, each)) for each in (issuer, subject)]
    validity = tlv(0x30, tlv(0x17, b"200101000000Z"), tlv(tag, not_after))
    body = tlv(0x30, version, tlv(2, b"\1"), tlv(0x30), names[0], validity, names[1], tlv(0x30))
    return tlv(0x30, body, tlv(0x30), tlv(3, b"\0"))


@pytest.mark.parametrize(
    ("not_after", "tag", "moment"),
    [
        (b"261127101112Z", 0x17, (2026, 11, 27, 10, 11, 12)),
        (b"491231235959Z", 0x17, (2049, 12, 31, 23, 59, 59)),
        (b"500101000000Z", 0x17, (1950, 1, 1, 0, 0, 0)),
        (b"20500101000000Z", 0x18, (2050, 1, 1, 0, 0, 0)),
        (b"99991231235959Z", 0x18, (9999, 12, 31, 23, 59, 59)),
    ],
)
def test_end_of_a_certificate(not_after: bytes, tag: int, moment: tuple[int, ...]) -> None:
    assert parse(make_certificate(not_after, tag)).not_after_ms == calendar.timegm(moment) * 1000


@pytest.mark.parametrize("not_after", [b"261327101112Z", b"2611271011Z", b"261127101112+0100", b"", b"26112710111\xb2Z"])
def test_time_that_is_none_is_refused(not_after: bytes) -> None:
    with pytest.raises(DerError):
        parse(make_certificate(not_after))


def test_names_and_alternative_names() -> None:
    certificate = parse(certificates_of(text("server.pem"))[0])

    assert certificate.subject_text == "CN=localhost,O=Barnabas tests,C=DE"
    assert certificate.alternative_names == {tlv(0x82, b"localhost"), tlv(0x87, b"\x7f\0\0\1"), tlv(0x87, bytes(15) + b"\1")}


def test_mail_address_is_written_as_java_does() -> None:
    certificate = parse(certificates_of(text("client.pem"))[0])

    assert certificate.subject_text == f"1.2.840.113549.1.9.1=#1611{b'alice@example.org'.hex()},CN=alice,O=Barnabas tests"
    assert certificate.alternative_names == frozenset()


def test_certificate_of_version_1_has_no_version() -> None:
    assert parse(make_certificate(b"261127101112Z")).subject_text == "CN=leaf"
    assert parse(make_certificate(b"261127101112Z", version=tlv(0xA0, tlv(2, b"\2")))).subject_text == "CN=leaf"


def test_chain_is_put_in_order_and_ends() -> None:
    leaf, middle, root = (
        parse(make_certificate(b"261127101112Z", subject=subject, issuer=issuer))
        for subject, issuer in (("leaf", "middle"), ("middle", "root"), ("root", "root"))
    )
    circle = [parse(make_certificate(b"261127101112Z", subject=a, issuer=b)) for a, b in (("x", "y"), ("y", "x"))]

    assert chain_of(leaf, [root, leaf, middle]) == [leaf, middle, root]
    assert chain_of(leaf, [root]) == [leaf]
    assert chain_of(circle[0], circle) == circle
