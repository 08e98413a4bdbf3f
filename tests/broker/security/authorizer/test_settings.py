from __future__ import annotations

import pytest

from broker.security.authorizer.settings import is_allowed_without_acls, parse_principal, super_users


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, set()),
        (" ", set()),
        ("User:bob;User:alice ", {"User:bob", "User:alice"}),
        (";  User:bob  ;  User:alice ", {"User:bob", "User:alice"}),
        ("User:CN=a,OU=b=c;User:x", {"User:CN=a,OU=b=c", "User:x"}),
        ("User:a:b", {"User:a:b"}),
    ],
)
def test_super_users(value: str | None, expected: set[str]) -> None:
    assert super_users(value) == expected


def test_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a string in format principalType:principalName but got bob"):
        super_users("bob;:alice")


def test_principal_may_have_an_empty_type_and_name() -> None:
    assert parse_principal(":alice") == ":alice"
    assert parse_principal("User:") == "User:"


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("true", True), (" TRUE ", True), ("false", False), ("yes", False)])
def test_allow_everyone(value: str | None, expected: bool) -> None:
    assert is_allowed_without_acls(value) is expected
