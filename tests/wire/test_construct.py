"""Goal: our codec and a second one, written in construct from the same declarations, agree on every byte of every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import decode, encode
from protocol.schema import Message
from tests.wire.construct_oracle import oracle
from tests.wire.messages import ALL_VERSIONS, identify, plain, values


@pytest.mark.parametrize(("cls", "version"), ALL_VERSIONS, ids=identify)
@settings(settings.get_profile("wire"))
@given(data=st.data())
def test_bytes_are_those_of_the_construct_codec(cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(values(cls, version))

    encoded = encode(message, version)

    assert oracle(cls, version).build(plain(message, version)) == encoded
    assert oracle(cls, version).parse(encoded) == plain(message, version)
    assert decode(cls, version, encoded) == (message, len(encoded))
