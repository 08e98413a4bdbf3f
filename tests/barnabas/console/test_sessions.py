"""How long sessions last, how many there are, and what one takes over from another."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from barnabas.cli.errors import RefusedError
from barnabas.cli.settings import Settings
from barnabas.console.app import make_app
from barnabas.console.logins import Login, takes_passwords
from barnabas.console.sessions import EACH_MAX, IDLE_S, LASTS_S, SESSIONS_MAX, Sessions
from barnabas.console.shell import View
from barnabas.console.watcher import Watcher
from protocol.sasl import jaas
from tests.barnabas.console.test_tries import Clock

PASSWORD = 'p"a\\s s{}'


def settings(protocol: str = "SASL_SSL", mechanism: str = "SCRAM-SHA-512") -> Settings:
    return Settings({"bootstrap.servers": "b:1", "security.protocol": protocol, "sasl.mechanisms": mechanism}, {"bootstrap.servers": "b:1"})


def login(user: str = "alice") -> Login:
    return Login(user, settings().of_user(user, PASSWORD))


def test_session_ends_after_a_time_without_use_and_after_all() -> None:
    clock = Clock()
    sessions = Sessions("", 1, allows_login=True, clock=clock)
    idle = sessions.sign_in(None, "local", login())
    renewed = sessions.sign_in(None, "local", login())
    used = sessions.sign_in(None, "local", login())

    clock.now_s += IDLE_S
    assert sessions.find(used.id) is used and sessions.find(renewed.id, is_used=False) is renewed
    clock.now_s += 1
    assert sessions.find(idle.id) is None and sessions.find(renewed.id) is None
    while clock.now_s < 1_000 + LASTS_S:
        assert sessions.find(used.id) is used
        clock.now_s += IDLE_S
    assert sessions.find(used.id) is None


def test_sign_in_makes_a_new_session_that_keeps_other_clusters() -> None:
    clock = Clock()
    sessions = Sessions("a token of someone", 1, clock=clock)
    first = sessions.sign_in(None, "one", login())
    clock.now_s += 60
    second = sessions.sign_in(first, "two", login("bob"))

    assert {first.id, first.csrf}.isdisjoint({second.id, second.csrf}) and second.began_s == first.began_s
    assert sessions.find(first.id) is None and sessions.find(second.id) is second
    assert {cluster: each.user for cluster, each in second.logins.items()} == {"one": "alice", "two": "bob"} and not second.has_token
    third = sessions.sign_in(second, "two")
    assert third.has_token and list(third.logins) == ["one"]
    sessions.forget(third, "one")
    assert sessions.find(third.id) is third and not third.logins
    sessions.sign_out(third)
    assert sessions.find(third.id) is None


def test_change_that_has_begun_stays_its_users() -> None:
    """A login that another request ends meanwhile gives nobody the rights of the console's own user."""
    sessions = Sessions("", 1, allows_login=True, clock=Clock())
    session = sessions.sign_in(None, "local", login())
    watcher = Watcher("local", settings().of_user("watcher", PASSWORD))
    watcher.close()
    app = make_app({"local": watcher}, (), sessions)
    cookie = f"{sessions.cookie}={session.id}".encode()
    scope = {"type": "http", "app": app, "path_params": {"cluster": "local"}, "headers": [(b"cookie", cookie)], "query_string": b""}
    view = View(Request(scope))
    assert view.is_let_in

    sessions.sign_out(session)

    assert view.settings_of_changes.librdkafka["sasl.username"] == "alice"
    later = View(Request(scope))
    assert not later.is_let_in
    with pytest.raises(RefusedError, match="sign in first"):
        _ = later.settings_of_changes


def test_number_of_sessions_is_bounded_and_one_user_does_not_end_those_of_others() -> None:
    sessions = Sessions("", 1, allows_login=True, clock=Clock())
    bob = sessions.sign_in(None, "local", login("bob"))
    of_alice = [sessions.sign_in(None, "local", login()) for _ in range(3 * SESSIONS_MAX)]

    assert sessions.find(bob.id) is bob
    assert [sessions.find(each.id) is not None for each in of_alice[-EACH_MAX - 1 :]] == [False] + [True] * EACH_MAX
    for number in range(SESSIONS_MAX):
        sessions.sign_in(None, "local", login(f"user {number}"))
    assert sessions.find(bob.id) is None and sessions.find(of_alice[-1].id) is None


def test_without_a_token_none_is_right() -> None:
    assert not any(Sessions("", 1).is_token(given) for given in ("", " ", "None"))
    assert Sessions("a token of someone", 1).is_token("a token of someone\n")


def test_password_is_in_no_text_of_a_session_and_is_whole_in_both_clients() -> None:
    session = Sessions("", 1).sign_in(None, "local", login())

    assert "alice" in repr(session) and not any(each in repr(session) for each in (PASSWORD[:3], session.id, session.csrf))
    own = session.logins["local"].settings
    assert (own.librdkafka["sasl.username"], own.librdkafka["sasl.password"]) == ("alice", PASSWORD)
    entry = jaas.parse(own.java["sasl.jaas.config"])
    assert entry.module == jaas.SCRAM_LOGIN_MODULE and entry.options == {"username": "alice", "password": PASSWORD}


@pytest.mark.parametrize(
    ("protocol", "mechanism", "takes"),
    [("SASL_SSL", "PLAIN", True), ("sasl_plaintext", "SCRAM-SHA-256", True), ("SASL_SSL", "OAUTHBEARER", False), ("SSL", "PLAIN", False)],
)
def test_who_can_log_in(protocol: str, mechanism: str, takes: bool) -> None:
    assert takes_passwords(settings(protocol, mechanism)) is takes
