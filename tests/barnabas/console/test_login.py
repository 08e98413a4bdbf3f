"""Users of the cluster log in to the console: what they may change, and what each attack on that gets. At ours and at Apache Kafka."""

from __future__ import annotations

import html
import re

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.cli.main import main
from tests.barnabas.console.logins import ALICE, BOB, CONSOLE, OPEN, PLAIN, SECURED, Browser, LoginConsole, set_password
from tests.barnabas.console.running import HOSTILE


@pytest.fixture
def alice(login_console: LoginConsole) -> Browser:
    """A browser in which she has logged in to one cluster."""
    browser = login_console.browser()
    assert browser.log_in(ALICE).status == 303
    return browser


@pytest.fixture
def topics(login_console: LoginConsole) -> AdminClient:
    return AdminClient({"bootstrap.servers": login_console.cluster.server.bootstrap})


def names(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=30).topics)


def test_logs_in_with_a_password_alone(login_console: LoginConsole) -> None:
    browser = login_console.browser()
    page = browser.get("/sign-in?next=/c/secured/new-topic").text

    assert "by SCRAM-SHA-512" in page and 'name="token"' not in page and "without TLS" not in page
    for user in ((ALICE[0], "another"), (ALICE[0], ALICE[1] + " "), ("nobody", ALICE[1]), ("nobody" + HOSTILE, "whatever it is")):
        refused = browser.log_in(user)
        why = html.unescape(re.findall(r'<p class="notice bad">(.*?)</p>', refused.text)[0])
        assert refused.status == 403 and why.startswith(f"▲ the brokers do not let {user[0]} in: "), refused.text
        assert "<script>document" not in refused.text and user[1] not in why and not browser.session_id
    for odd in (
        ("", ""),
        (ALICE[0], ""),
        ("", ALICE[1]),
        (f"{ALICE[0]}\0{BOB[0]}", ALICE[1]),
        (ALICE[0], f"{ALICE[1]}\n"),
        ("x" * 300, "x"),
    ):
        assert browser.log_in(odd).status == 400 and not browser.session_id
    assert browser.post("/sign-in", {"token": ""}).status == 403
    answer = browser.post("/sign-in", {"user": ALICE[0], "password": ALICE[1], "next": f"/c/{SECURED}/new-topic"})
    assert (answer.status, answer.headers["location"]) == (303, f"/c/{SECURED}/new-topic")
    cookies = [line.lower() for line in answer.headers.get_all("set-cookie")]
    assert len(cookies) == 2 and all("httponly" in each and "samesite=strict" in each and "; secure" not in each for each in cookies)
    assert f">{ALICE[0]}</span>" in browser.get("/new-topic").text


def test_cookie_is_for_tls_alone_behind_a_proxy_with_tls(login_console: LoginConsole) -> None:
    browser = login_console.browser()

    answer = browser.log_in(ALICE, Origin=f"https://localhost:{login_console.console.port}")

    assert answer.status == 303 and all("; Secure" in each for each in answer.headers.get_all("set-cookie"))


def test_changes_are_made_with_the_rights_of_the_user(alice: Browser, login_console: LoginConsole, topics: AdminClient) -> None:
    topic = "made-by-alice"

    assert alice.post("/new-topic", {"name": topic, "partitions": "1", "replicas": "1"}).status == 303
    assert topic in names(topics)
    assert alice.post(f"/topics/{topic}/config", {"name": "retention.ms", "value": "7200000", "action": "set"}).status == 303
    assert alice.post(f"/topics/{topic}/produce", {"value": "hers"}).headers["location"].endswith(f"/{topic}/messages/0/0")
    bob = login_console.browser()
    assert bob.log_in(BOB).status == 303
    for browser, path, fields in (
        (alice, "/new-topic", {"name": "other"}),
        (alice, "/reset", {"id": "readers", "to": "start", "topic": topic}),
        (bob, "/new-topic", {"name": "made-by-bob"}),
        (bob, f"/topics/{topic}/config", {"name": "retention.ms", "value": "1", "action": "set"}),
        (bob, f"/topics/{topic}/produce", {"value": "his"}),
    ):
        refused = browser.post(path, fields)
        why = re.findall(r'<p class="notice bad">▲ (.*?)</p>', refused.text)
        assert refused.status == 400 and len(why) == 1 and "_AUTHORIZATION_FAILED" in why[0], (path, refused.text)
        assert next(iter(fields.values())) in refused.text  # the form has what was typed
    assert not {"other", "made-by-bob"} & names(topics)


def test_each_cluster_has_its_own_login(alice: Browser, topics: AdminClient) -> None:
    old = alice.twin()
    fields = {"name": "made-in-plain", "partitions": "1", "replicas": "1"}

    assert alice.post("/new-topic", fields, cluster=PLAIN).status == 403  # her login is to the other one
    assert "It goes to them without TLS" in alice.get("/sign-in", cluster=PLAIN).text
    assert alice.log_in(("alice", BOB[1]), cluster=PLAIN).status == 403
    assert alice.log_in(BOB, cluster=PLAIN).status == 303
    assert alice.session_id != old.session_id
    assert old.post("/new-topic", fields | {"csrf": alice.secret("/new-topic")}).status == 403
    assert "TOPIC_AUTHORIZATION_FAILED" in alice.post("/new-topic", fields, cluster=PLAIN).text  # as Bob there
    assert alice.post("/new-topic", {"name": "made-still"} | {"partitions": "1", "replicas": "1"}).status == 303  # as Alice here
    assert alice.log_in(ALICE, cluster=PLAIN).status == 303
    assert alice.post("/new-topic", fields, cluster=PLAIN).status == 303 and {"made-in-plain", "made-still"} <= names(topics)
    assert alice.get("/sign-in", cluster=OPEN).status == 404 and alice.log_in(ALICE, cluster=OPEN).status == 404
    assert alice.post("/new-topic", fields, cluster=OPEN).status == 403


def test_attacks_change_nothing(alice: Browser, login_console: LoginConsole, topics: AdminClient) -> None:
    fields, port = {"name": "made-by-an-attack"}, login_console.console.port
    foreign = ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Origin": f"http://localhost:{port + 1}"})
    stranger = login_console.browser()
    bob = login_console.browser()
    assert bob.log_in(BOB).status == 303

    for headers in (*foreign, {"Sec_Fetch_Site": "cross-site"}, {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}):
        assert stranger.log_in(ALICE, **headers).status == 403 and not stranger.session_id
        assert alice.post("/sign-out", {"csrf": alice.secret("/new-topic")}, **headers).status == 403
        assert alice.post("/new-topic", fields, **headers).status == 403
    for secret in ("", bob.secret("/new-topic")):
        assert alice.post("/sign-out", {"csrf": secret}).status == 403
        assert alice.post("/new-topic", fields | {"csrf": secret}).status == 403
        assert alice.post("/sign-in", {"user": BOB[0], "password": BOB[1], "csrf": secret}).status == 403  # who is signed in stays it
    assert alice.get("/sign-out").status == 303 and alice.secret("/new-topic")
    stranger.cookies = {name: value + "x" for name, value in alice.cookies.items()}
    assert stranger.post("/new-topic", fields).status == 403
    assert stranger.post("/sign-in", {"user": "x" * 30_000, "password": "x"}).status == 413
    assert "made-by-an-attack" not in names(topics)


def test_session_that_somebody_planted_is_worth_nothing(login_console: LoginConsole) -> None:
    name = f"barnabas_console_{login_console.console.port}"
    attacker, victim = login_console.browser(), login_console.browser()
    assert attacker.log_in(BOB).status == 303

    for planted in ("chosen-by-the-attacker", attacker.session_id):
        victim.cookies = {name: planted}
        assert victim.log_in(ALICE).status == 303 and victim.session_id != planted
        attacker.cookies = {name: planted}
        assert attacker.get("/new-topic").status == 303 and attacker.post("/new-topic", {"name": "made-planted"}).status == 403


def test_sign_out_ends_the_session(alice: Browser) -> None:
    copied = alice.twin()

    assert alice.post("/sign-out", {"csrf": alice.secret("/new-topic")}).status == 303
    assert not alice.session_id
    assert copied.get("/new-topic").status == 303 and copied.post("/new-topic", {"name": "made-late"}).status == 403


def test_user_whose_password_was_changed_is_refused_in_a_sentence(login_console: LoginConsole, topics: AdminClient) -> None:
    carol = ("carol", "the first")
    login_console.cluster.allow(carol[0], "CREATE topic *", "DESCRIBE topic *")
    set_password(login_console.cluster, carol)
    browser = login_console.browser()
    assert browser.log_in(carol).status == 303
    set_password(login_console.cluster, (carol[0], "the second"))

    refused = browser.post("/new-topic", {"name": "made-by-carol", "partitions": "1", "replicas": "1"})

    (why,) = re.findall(r'<p class="notice bad">▲ (.*?)</p>', refused.text)
    assert refused.status == 403 and why.startswith("the brokers do not let carol in any more: "), refused.text
    assert 'name="password"' in refused.text and "the first" not in refused.text and "made-by-carol" not in names(topics)
    assert browser.get("/new-topic").status == 303  # the login is forgotten
    assert browser.log_in((carol[0], "the second")).status == 303
    assert browser.post("/new-topic", {"name": "made-by-carol", "partitions": "1", "replicas": "1"}).status == 303


def test_log_names_the_user_and_no_secret(alice: Browser, login_console: LoginConsole) -> None:
    alice.post("/new-topic", {"name": "other\nsession of everybody"})
    wrong = login_console.browser()
    wrong.log_in(("typed-a-password-here", "x"))

    lines = login_console.log.splitlines()
    assert re.search(r'session [0-9a-f]{8} of "alice" from 127\.0\.0\.1 on secured: signed in$', login_console.log, re.MULTILINE)
    assert re.search(
        r'session [0-9a-f]{8} of "alice" from 127\.0\.0\.1 on secured: create topic other\\nsession of .*: failed: ', lines[-2]
    )
    assert lines[-1].endswith(" 127.0.0.1 on secured: sign-in refused")
    secrets = (ALICE[1], BOB[1], CONSOLE[1], "typed-a-password-here", *alice.cookies.values(), alice.secret("/new-topic"))
    assert not any(secret in login_console.log for secret in secrets) and "Traceback" not in login_console.log
    page = alice.get("/new-topic").text
    assert not any(secret in page for secret in (ALICE[1], CONSOLE[1], *alice.cookies.values()))


def test_login_needs_a_cluster_that_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "--port", "0", "--allow-login", "-b", "localhost:1"]) == 1

    assert capsys.readouterr().err.splitlines() == [
        "barnabas console: --allow-login: no cluster here is one whose context has a login by SASL PLAIN or SCRAM"
    ]
