from __future__ import annotations

import pytest

from broker.security.authorizer.addresses import java_address, java_address_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::", "0:0:0:0:0:0:0:0"),
        ("2001:DB8::00ab", "2001:db8:0:0:0:0:0:ab"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::10.0.0.1", "0:0:0:0:0:0:a00:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_address_is_written_as_java_writes_it(text: str, expected: str) -> None:
    assert java_address_of(text) == expected


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0", "10.0.0.1.2", "1::2::3", "*", "10.0.0.1\0", "0x7f000001"])
def test_text_that_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        java_address_of(text)


@pytest.mark.parametrize("size", [0, 3, 5, 15, 17])
def test_address_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes"):
        java_address(bytes(size))
