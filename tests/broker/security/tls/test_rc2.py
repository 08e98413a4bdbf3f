"""RC2: the vectors of RFC 2268, section 5."""

from __future__ import annotations

import pytest

from broker.security.tls.jks import StoreError
from broker.security.tls.rc2 import CONTENT_SIZE_MAX, Rc2, decrypt_cbc


@pytest.mark.parametrize(
    ("key", "bits", "plain", "cipher"),
    [
        ("0000000000000000", 63, "0000000000000000", "ebb773f993278eff"),
        ("ffffffffffffffff", 64, "ffffffffffffffff", "278b27e42e2f0d49"),
        ("3000000000000000", 64, "1000000000000001", "30649edf9be7d2c2"),
        ("88", 64, "0000000000000000", "61a8a244adacccf0"),
        ("88bca90e90875a", 64, "0000000000000000", "6ccf4308974c267f"),
        ("88bca90e90875a7f0f79c384627bafb2", 64, "0000000000000000", "1a807d272bbe5db1"),
        ("88bca90e90875a7f0f79c384627bafb2", 128, "0000000000000000", "2269552ab0f85ca6"),
        ("88bca90e90875a7f0f79c384627bafb216f80a6f85920584c42fceb0be255daf1e", 129, "0000000000000000", "5b78d3a43dfff1f1"),
    ],
)
def test_vectors_of_the_rfc(key: str, bits: int, plain: str, cipher: str) -> None:
    assert Rc2(bytes.fromhex(key), bits).decrypt_block(bytes.fromhex(cipher)).hex() == plain


def test_content_has_a_bound() -> None:
    with pytest.raises(StoreError):
        decrypt_cbc(bytes(5), bytes(8), bytes(CONTENT_SIZE_MAX + 8))
