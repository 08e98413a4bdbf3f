"""What may be changed, by whom, and what each attack on that gets."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.barnabas.console.running import HOSTILE, Answer, Console, environment
from tests.support.process import ServerProcess

TOKEN = "a-token-that-nobody-guesses"


@dataclass(frozen=True, slots=True)
class User:
    """Of a console that may change things; `cookie` and `csrf` are of a session."""

    console: Console
    log: Path
    cookie: str
    csrf: str

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        own = {"Origin": f"http://localhost:{self.console.port}", "Cookie": self.cookie} | headers
        sent = {name.replace("_", "-"): value for name, value in own.items() if value}
        return self.console.ask("POST", self.console.base + path, headers=sent, body=urlencode({"csrf": self.csrf} | fields))

    def get(self, path: str) -> Answer:
        return self.console.get(self.console.base + path, Cookie=self.cookie)


def _sign_in(console: Console, token: str, wanted: str = "") -> Answer:
    headers = {"Origin": f"http://localhost:{console.port}"}
    return console.ask("POST", f"{console.base}/sign-in", headers=headers, body=urlencode({"token": token, "next": wanted}))


@pytest.fixture(scope="module")
def user(shown_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    home = tmp_path_factory.mktemp("changes")
    (home / "token").write_text(f"{TOKEN}\n")
    words = ("-b", shown_server.bootstrap, "--token-file", str(home / "token"))
    console = Console(*words, environment=environment(home, shown_server), log=home / "log")
    cookie = str(_sign_in(console, TOKEN).headers["set-cookie"]).partition(";")[0]
    form = console.get(f"{console.base}/new-topic", Cookie=cookie).text
    found = re.search(r'name="csrf" value="([^"]+)"', form)
    assert found is not None, form
    yield User(console, home / "log", cookie, found[1])
    console.stop()


def test_only_reads_unless_told(console: Console) -> None:
    own = {"Origin": f"http://localhost:{console.port}"}

    for path in ("/sign-in", "/new-topic", "/topics/orders/config", "/topics/orders/produce", "/reset?id=billing"):
        assert console.get(console.base + path).status == 404
        assert console.ask("POST", console.base + path, headers=own, body="name=made").status == 404
    assert "Sign in" not in console.page("/topics", until="orders")


def test_signs_in_with_the_token_alone(user: User) -> None:
    answer = _sign_in(user.console, TOKEN, f"{user.console.base}/topics?page=2")
    cookie = str(answer.headers["set-cookie"]).lower()

    assert answer.status == 303 and answer.headers["location"] == f"{user.console.base}/topics?page=2"
    assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN not in cookie
    for wrong in ("", TOKEN[:-1], TOKEN + "x", "\N{LATIN SMALL LETTER E WITH ACUTE}"):
        refused = _sign_in(user.console, wrong)
        assert refused.status == 403 and "set-cookie" not in refused.headers
    for away in ("https://evil.example/", "//evil.example/", f"{user.console.base}/\\evil", f"{user.console.base}/\r\nx: y"):
        assert _sign_in(user.console, TOKEN, away).headers["location"] == user.console.base


def test_attacks_change_nothing(user: User, shown_server: ServerProcess) -> None:
    fields, port = {"name": "attacked"}, user.console.port

    assert user.post("/new-topic", fields, Cookie="").status == 403
    assert user.post("/new-topic", fields, Cookie=user.cookie + "x").status == 403
    assert user.post("/new-topic", fields | {"csrf": ""}).status == 403
    assert user.post("/new-topic", fields | {"csrf": user.csrf[:-1]}).status == 403
    other = str(_sign_in(user.console, TOKEN).headers["set-cookie"]).partition(";")[0]
    assert user.post("/new-topic", fields, Cookie=other).status == 403  # the secret is of another session
    assert user.post("/new-topic", fields, Origin="https://evil.example").status == 403
    assert user.post("/new-topic", fields, Origin="null").status == 403
    assert user.post("/new-topic", fields, Origin="").status == 403
    assert user.post("/new-topic", fields, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document").status == 403
    assert user.post("/new-topic", fields, Host=f"evil.example:{port}", Origin=f"http://evil.example:{port}").status == 403
    assert user.post("/new-topic", fields | {"value": "x" * 2_100_000}).status == 413
    assert "attacked" not in AdminClient({"bootstrap.servers": shown_server.bootstrap}).list_topics(timeout=30).topics


def test_topic_is_created_and_its_config_set_and_unset(user: User, shown_server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": shown_server.bootstrap})

    def retention() -> str:
        (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "made")]).values()
        return str(future.result(30)["retention.ms"].value)

    made = user.post("/new-topic", {"name": "made", "partitions": "2", "replicas": "1", "settings": "retention.ms=3600000\r\n"})
    assert made.status == 303 and made.headers["location"] == f"{user.console.base}/topics/made"
    assert user.get("/topics/made").status == 200
    assert len(admin.list_topics("made", timeout=30).topics["made"].partitions) == 2 and retention() == "3600000"
    again = user.post("/new-topic", {"name": "made"})
    assert again.status == 400 and "TOPIC_ALREADY_EXISTS" in again.text
    assert user.post("/topics/made/config", {"name": "retention.ms", "value": "7200000", "action": "set"}).status == 303
    assert retention() == "7200000"
    assert user.post("/topics/made/config", {"name": "retention.ms", "action": "delete"}).status == 303
    assert retention() == "604800000"
    for path, fields in (
        ("/topics/made/config", {"name": "cleanup.policy", "value": HOSTILE}),
        ("/topics/made/config", {"name": HOSTILE, "value": "1"}),
        ("/new-topic", {"name": HOSTILE}),
        ("/new-topic", {"name": "x", "partitions": HOSTILE}),
    ):
        refused = user.post(path, fields)
        assert refused.status == 400 and "<script>document" not in refused.text and "<img" not in refused.text
        assert html.escape(HOSTILE, quote=False)[:20] in refused.text


def test_record_is_produced_as_it_was_typed(user: User, shown_server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": shown_server.bootstrap})
    admin.create_topics([NewTopic("written", 2, 1)])["written"].result(30)
    fields = {"value": f"{HOSTILE}\r\nnext", "headers": f"{HOSTILE}\r\nplain=1", "partition": "1"}

    answer = user.post("/topics/written/produce", fields)
    tombstone = user.post("/topics/written/produce", {"key": "gone", "null_value": "1", "partition": "1"})

    assert (answer.status, tombstone.status) == (303, 303)
    assert answer.headers["location"] == f"{user.console.base}/topics/written/messages/1/0"
    consumer = Consumer({"bootstrap.servers": shown_server.bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("written", 1, 0)])
    first, second = consumer.consume(2, 60)
    consumer.close()
    name, _, value = HOSTILE.partition("=")
    assert (first.key(), first.value()) == (None, f"{HOSTILE}\nnext".encode())
    assert first.headers() == [(name, value.encode()), ("plain", b"1")] and (second.key(), second.value()) == (b"gone", None)
    empty = user.post("/topics/written/produce", {"empty_key": "1", "value": "", "partition": "0"})
    assert '<p class="quiet">empty</p>' in user.console.page("/topics/written/messages/0/0") and empty.status == 303
    missing = user.post("/topics/nowhere/produce", {"value": "1"})
    assert missing.status == 400 and "nowhere" not in admin.list_topics(timeout=30).topics


def test_group_is_reset_to_what_was_previewed(user: User, shown_server: ServerProcess) -> None:
    group, admin = f"{HOSTILE}reset", AdminClient({"bootstrap.servers": shown_server.bootstrap})
    admin.create_topics([NewTopic("reread", 1, 1)])["reread"].result(30)
    producer = Producer({"bootstrap.servers": shown_server.bootstrap})
    for number in range(5):
        producer.produce("reread", str(number))
    assert producer.flush(30) == 0

    def offset(new: int | None = None) -> int:
        if new is not None:
            asked = ConsumerGroupTopicPartitions(group, [TopicPartition("reread", 0, new)])
            admin.alter_consumer_group_offsets([asked])[group].result(30)
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        return int(future.result(30).topic_partitions[0].offset)

    def plan(preview: Answer) -> str:
        found = re.search(r'name="plan" value="([^"]+)"', preview.text)
        assert found is not None, preview.text
        return html.unescape(found[1])

    assert offset(4) == 4
    preview = user.post("/reset", {"id": group, "to": "start", "action": "preview"})
    assert preview.status == 200 and "<script>document" not in preview.text and "Set these 1 offsets" in preview.text
    assert offset() == 4
    done = user.post("/reset", {"id": group, "plan": plan(preview), "action": "reset"})
    assert done.status == 303 and done.headers["location"] == f"{user.console.base}/group?id={quote(group, safe='')}"
    assert offset() == 0
    stale = plan(user.post("/reset", {"id": group, "to": "+2"}))
    offset(3)
    assert "changed since the preview" in user.post("/reset", {"id": group, "plan": stale, "action": "reset"}).text
    assert user.post("/reset", {"id": group, "plan": "[[", "action": "reset"}).status == 400
    assert user.post("/reset", {"id": group, "to": HOSTILE}).status == 400 and offset() == 3


def test_log_says_who_did_what_and_no_secret(user: User) -> None:
    user.post("/new-topic", {"name": "forged\nsession 00000000 from nowhere: done"})
    user.post("/new-topic", {"name": "", "csrf": "wrong"})

    lines = [line for line in user.log.read_text().splitlines() if "barnabas.console.audit" in line]
    who = r"session [0-9a-f]{8} from 127\.0\.0\.1 on \S+: "
    assert re.search(who + r"create topic forged\\nsession 00000000 from nowhere: done partitions=-1 replicas=-1 {}: failed", lines[-2])
    assert re.search(who + r"refused, without the form's secret: POST \S+/new-topic", lines[-1])
    secrets = (TOKEN, user.csrf, user.cookie.partition("=")[2])
    assert not any(secret in user.log.read_text() for secret in secrets)


def test_read_only_context_refuses_and_sign_out_ends_a_session(shown_server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "barnabas").mkdir()
    address = f'bootstrap_servers = "{shown_server.bootstrap}"'
    (tmp_path / "barnabas" / "config.toml").write_text(f'current = "live"\n[contexts.live]\n{address}\nread_only = true\n')
    (tmp_path / "token").write_text(TOKEN)
    console = Console("--token-file", str(tmp_path / "token"), environment=environment(tmp_path, shown_server))
    try:
        cookie = str(_sign_in(console, TOKEN).headers["set-cookie"]).partition(";")[0]
        csrf = re.search(r'name="csrf" value="([^"]+)"', console.get(f"{console.base}/new-topic", Cookie=cookie).text)
        assert csrf is not None
        user = User(console, tmp_path, cookie, csrf[1])
        for path in ("/new-topic", "/topics/orders/config", "/topics/orders/produce", "/reset"):
            assert "is read-only" in html.unescape(user.post(path, {"name": "made2", "id": "billing", "to": "start"}).text)
        assert user.post("/sign-out", {}).status == 303
        assert user.post("/new-topic", {"name": "made2"}).status == 403
    finally:
        console.stop()
