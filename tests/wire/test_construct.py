"""Goal: our codec and a second one, written in construct from the same declarations, agree on every byte of every version."""

from __future__ import annotations

import pytest

from protocol.codec import decode, encode
from protocol.schema import Message
from tests.wire.construct_oracle import oracle
from tests.wire.messages import ALL_MESSAGES, name_of, plain, random_messages, versions_of

pytestmark = pytest.mark.long("a second opinion on what kio and the golden bytes judge")


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=name_of)
def test_bytes_are_those_of_the_construct_codec(cls: type[Message]) -> None:
    for version in versions_of(cls):
        construct = oracle(cls, version)
        for message in random_messages(cls, version):
            encoded = encode(message, version)

            assert construct.build(plain(message, version)) == encoded, (version, message)
            assert construct.parse(encoded) == plain(message, version), (version, message)
            assert decode(cls, version, encoded) == (message, len(encoded)), (version, message)
