"""What the authorizer keeps is bounded, whatever peers ask for, and asking again is one lookup."""

from __future__ import annotations

import pytest

from broker.security.authorizer import standard_authorizer
from broker.security.authorizer.acl import Acl
from broker.security.authorizer.standard_authorizer import KEPT_CHARS_MAX, StandardAuthorizer
from tests.broker.security.authorizer.room import ALLOW, LITERAL, READ, TOPIC, store_of

HOST = "10.0.0.1"


@pytest.fixture
def authorizer(monkeypatch: pytest.MonkeyPatch) -> StandardAuthorizer:
    monkeypatch.setattr(standard_authorizer, "GENERATION_SIZE", 100)
    authorizer = StandardAuthorizer(store_of([Acl(TOPIC, "honest", LITERAL, "User:alice", "*", READ, ALLOW)]))
    authorizer.is_loaded = True
    return authorizer


def test_decision_that_was_made_before_is_the_same_object(authorizer: StandardAuthorizer) -> None:
    first = authorizer.authorize("User:alice", HOST, READ, TOPIC, "honest")

    assert authorizer.authorize("User:alice", HOST, READ, TOPIC, "honest") is first
    assert authorizer.authorize_by_type("User:alice", HOST, READ, TOPIC) is authorizer.authorize_by_type("User:alice", HOST, READ, TOPIC)


def test_other_questions_neither_grow_without_bound_nor_push_out_what_is_asked_again(authorizer: StandardAuthorizer) -> None:
    first = authorizer.authorize("User:alice", HOST, READ, TOPIC, "honest")
    counts = []
    for number in range(1000):
        authorizer.authorize("User:mallory", HOST, READ, TOPIC, f"topic-{number}")
        if number % 50 == 0:
            assert authorizer.authorize("User:alice", HOST, READ, TOPIC, "honest") is first
        counts.append(authorizer.kept_count)

    assert max(counts) <= 200


def test_what_is_not_asked_again_goes(authorizer: StandardAuthorizer) -> None:
    first = authorizer.authorize("User:alice", HOST, READ, TOPIC, "honest")
    for number in range(200):
        authorizer.authorize("User:mallory", HOST, READ, TOPIC, f"topic-{number}")

    again = authorizer.authorize("User:alice", HOST, READ, TOPIC, "honest")
    assert again == first and again is not first


def test_long_names_are_answered_and_not_kept(authorizer: StandardAuthorizer) -> None:
    decision = authorizer.authorize("User:alice", HOST, READ, TOPIC, "x" * KEPT_CHARS_MAX)

    assert not decision.is_allowed
    assert authorizer.kept_count == 0
