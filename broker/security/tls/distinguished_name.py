"""The text of a distinguished name as Java's X500Principal.getName() writes it, which is the principal's name in Kafka (RFC 2253).

The last RDN comes first. Attribute types outside RFC 2253's table are written by number, their values as hex of the DER: an e-mail address
is `1.2.840.113549.1.9.1=#1605…`. Neither `ssl.SSLSocket.getpeercert` nor cryptography's `rfc4514_string` writes that.

Source: sun.security.x509.X500Name, RDN and AVA.toRFC2253String of Java 17; a test compares with it.
"""

from __future__ import annotations

import re

from broker.security.tls.der import SEQUENCE, SET, Element, children_of, object_identifier, read_one

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

STRING_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: the others are written as hex."""

_ESCAPED = frozenset(',=+<>#;"\\')
_BLANK = " \r"
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def name_text(name: bytes) -> str:
    """The text of a Name's DER. Raises DerError."""
    return ",".join(_rdn(rdn) for rdn in reversed(children_of(read_one(name), SEQUENCE)))


def _rdn(rdn: Element) -> str:
    return "+".join(_attribute(attribute) for attribute in children_of(rdn, SET, 1))


def _attribute(attribute: Element) -> str:
    identifier, value = children_of(attribute, SEQUENCE, 2)[:2]
    number = object_identifier(identifier)
    keyword = KEYWORDS.get(number)
    if keyword is None or value.tag not in STRING_TAGS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_escape(_decode(value.content))}"


def _decode(content: bytes) -> str:
    """Java reads every string as UTF-8, also those of other types. A surrogate is replaced as a whole; Python replaces its bytes."""
    return _SURROGATE.sub("\ufffd".encode(), content).decode("utf-8", "replace")


def _escape(text: str) -> str:
    """Blanks are escaped at the ends only."""
    escaped = "".join("\\" + character if character in _ESCAPED else "\\00" if character == "\0" else character for character in text)
    inner = escaped.strip(_BLANK)
    if not inner:
        return "".join("\\" + character for character in escaped)
    lead = len(escaped) - len(escaped.lstrip(_BLANK))
    trail = len(escaped) - lead - len(inner)
    return "".join(
        (
            *("\\" + character for character in escaped[:lead]),
            inner,
            *("\\" + character for character in escaped[len(escaped) - trail :]),
        )
    )
