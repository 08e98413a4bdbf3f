"""What a node reads of its own token, and when it fetches the next (ExpiringCredentialRefreshingLogin.refreshMs)."""

from __future__ import annotations

import pytest

from broker.security.sasl.access_token import RETRY_MS, AccessToken, RefreshRules, parse, refresh_time_ms
from broker.security.sasl.oauthbearer import TokenError
from tests.support.jwts import raw_token, token

HOUR_MS = 3_600_000


def test_times_are_read_and_the_token_is_shown_by_no_repr() -> None:
    text = token({"sub": "node", "iat": 1000, "exp": 4600.5})

    found = parse(text)

    assert found == AccessToken(text, 1_000_000, 4_600_000)
    assert text not in repr(found)
    assert parse(token({"sub": "node", "exp": 5})).start_ms is None
    assert parse(token({"client": "node", "exp": 5}), sub_claim_name="client").end_ms == 5000


NO_TOKENS = [
    *("", "opaque", "a.b", "a..c", "a.!.c", "a." + "b" * 65_536 + ".c"),
    *(raw_token({}, payload) for payload in (b"no json", b"[]")),
    *(token(claims) for claims in ({"sub": "a"}, {"exp": 5}, {"sub": " ", "exp": 5}, {"sub": "a", "exp": True}, {"sub": "a", "exp": -1})),
]


@pytest.mark.parametrize("text", NO_TOKENS, ids=range(len(NO_TOKENS)))
def test_what_is_no_token_is_refused_without_a_part_of_it(text: str) -> None:
    with pytest.raises(TokenError) as refused:
        parse(text)

    assert not text or text not in str(refused.value)


@pytest.mark.parametrize(
    ("now_ms", "start_ms", "end_ms", "random", "expected_ms"),
    [
        (0, 0, HOUR_MS, 0.0, int(HOUR_MS * 0.8)),
        (0, 0, HOUR_MS, 1.0, int(HOUR_MS * 0.85)),
        (0, None, HOUR_MS, 0.0, int(HOUR_MS * 0.8)),
        (1_000_000, 0, HOUR_MS, 0.0, int(HOUR_MS * 0.8)),  # of its own time, whenever it was fetched
        (0, 0, 1_000_000, 1.0, 700_000),  # the buffer of 300 s before the end
        (HOUR_MS - 400_000, 0, HOUR_MS, 0.0, HOUR_MS - 340_000),  # not before a minute is over
        (0, 0, 100_000, 0.0, 80_000),  # too short for both
        (50_000, 0, 100_000, 0.0, 90_000),
        (100_001, 0, 100_000, 0.0, 100_001 + RETRY_MS),  # has ended
    ],
)
def test_the_next_is_fetched_when_kafka_would(now_ms: int, start_ms: int | None, end_ms: int, random: float, expected_ms: int) -> None:
    assert refresh_time_ms(AccessToken("", start_ms, end_ms), RefreshRules(), now_ms, random) == expected_ms
