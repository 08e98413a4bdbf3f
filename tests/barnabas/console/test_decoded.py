"""Decoded values in a console whose context has a registry with a password, at Barnabas and at Apache Kafka, and in Chromium."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from markupsafe import escape
from playwright.sync_api import Browser, expect

from barnabas.cli.record_json import from_line
from barnabas.cli.schemas.registry import LOGIN
from tests.barnabas.console.running import HOSTILE, Console, environment
from tests.barnabas.console.test_messages import events, rows
from tests.barnabas.console.test_values import AVRO, JSON, ORDER, PROTOBUF, framed, order, schemas
from tests.support.installed import wait_until
from tests.support.process import ServerProcess
from tests.support.schema_registry import SchemaRegistry

TOPIC, PASSWORD = "decoded", "a-password-of-the-registry"
MESSAGES = f"/topics/{TOPIC}/messages"
FAR, ODD = 7, 8
RECORDS = [
    (b"k0", framed(AVRO, order("book"))),
    (framed(AVRO, order("key", "RED")), framed(PROTOBUF, b"\0\x08\x2a")),
    (None, framed(JSON, b'{"free": true}')),
    (b"k3", framed(ODD, json.dumps({"html": HOSTILE}).encode())),
    (b"k4", framed(AVRO, b"\xff\xfe")),
    (b"k5", framed(FAR, b"x")),
    (b"k6", b"plain"),
    (b"k7", None),
]


@dataclass(frozen=True, slots=True)
class Shown:
    console: Console
    registry: SchemaRegistry


def create(server: ServerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


@pytest.fixture(scope="module")
def shown(shown_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    known = schemas() | {ODD: {"schema": json.dumps({"title": HOSTILE, "description": HOSTILE}), "schemaType": "JSON"}}
    known[AVRO] = {"schema": json.dumps(ORDER | {"doc": HOSTILE})}
    home = tmp_path_factory.mktemp("decoded")
    (home / "barnabas").mkdir()
    (home / "client.properties").write_text(f"bootstrap.servers={shown_server.bootstrap}\nbasic.auth.user.info=me:{PASSWORD}\n")
    create(shown_server, TOPIC)
    producer = Producer({"bootstrap.servers": shown_server.bootstrap})
    for key, value in RECORDS:
        producer.produce(TOPIC, value, key=key)
    assert producer.flush(30) == 0
    with SchemaRegistry(known, login=f"me:{PASSWORD}") as registry:
        (home / "barnabas" / "config.toml").write_text(
            f'current = "shop"\n[contexts.shop]\ncommand_config = "{home / "client.properties"}"\nschema_registry = "{registry.url}"\n'
        )
        variables = {name: text for name, text in environment(home, shown_server).items() if name != LOGIN}
        console = Console(environment=variables)
        console.page("/topics", until=TOPIC)
        yield Shown(console, registry)
        console.stop()


def test_rows_show_what_is_in_them(shown: Shown) -> None:
    html = rows(events(shown.console, f"{MESSAGES}/records"))

    for text in ('{"sku": "book", "color": "GREEN"}', '{"sku": "key", "color": "RED"}', '{"count": 42}', '{"free": true}', HOSTILE):
        assert str(escape(json.dumps(text)[1:-1] if text == HOSTILE else text)) in html
    assert "shop.Order</small>" in html and "shop.Line</small>" in html and "Free</small>" in html
    assert f"schema {FAR}</small>" in html and "plain" in html and "<i>null</i>" in html
    assert "<script>" not in html and "<img" not in html


def test_record_has_its_schema_and_its_bytes(shown: Shown) -> None:
    avro = shown.console.page(f"{MESSAGES}/0/0")
    assert "JSON by Avro shop.Order, schema 1" in avro and "&#34;sku&#34;: &#34;book&#34;" in avro
    assert "000000  00 00 00 00 01 08 62 6f 6f 6b" in avro and "&#34;doc&#34;" in avro
    protobuf = shown.console.page(f"{MESSAGES}/0/1")
    assert (
        "JSON by Protobuf shop.Line, schema 2" in protobuf
        and "JSON by Avro shop.Order, schema 1" in protobuf
        and "message Order {}" in protobuf
    )
    odd = shown.console.page(f"{MESSAGES}/0/3")
    assert str(escape(HOSTILE)) in odd
    broken = shown.console.page(f"{MESSAGES}/0/4")
    assert "Shown as it is: no Avro of its schema" in broken and "00 00 00 00 01 ff fe" in broken
    assert "the registry has no schema 7" in shown.console.page(f"{MESSAGES}/0/5")
    for page in (avro, protobuf, odd, broken):
        assert PASSWORD not in page and base64.b64encode(f"me:{PASSWORD}".encode()).decode() not in page
        assert "<script>document" not in page and "<img" not in page


@pytest.mark.parametrize(("text", "count"), [("GREEN", 1), ("green", 1), ("RED", 1), ("42", 1), ("book", 1), ('"color"', 2), ("BLUE", 0)])
def test_search_looks_into_decoded_values(shown: Shown, text: str, count: int) -> None:
    found = events(shown.console, f"{MESSAGES}/records?mode=search&q={text}")

    assert [data for name, data in found if name == "rows"][-1]["found"] == count


def test_download_is_byte_for_byte_unless_decoded_values_are_asked_for(shown: Shown) -> None:
    raw = shown.console.get(f"{shown.console.base}{MESSAGES}.jsonl?").text.splitlines()
    decoded = shown.console.get(f"{shown.console.base}{MESSAGES}.jsonl?decoded=1").text.splitlines()

    assert [(record.key, record.value) for record in (from_line(line.encode()) for line in raw)] == RECORDS
    again = [from_line(line.encode()) for line in decoded]
    assert again[0].value == b'{"sku": "book", "color": "GREEN"}' and again[1].key == b'{"sku": "key", "color": "RED"}'
    assert [record.value for record in again[4:]] == [value for _, value in RECORDS[4:]]


def test_registry_that_hangs_holds_up_no_other_page(shown: Shown, shown_server: ServerProcess) -> None:
    producer = Producer({"bootstrap.servers": shown_server.bootstrap})
    shown.registry.is_open.clear()
    try:
        create(shown_server, "hung")
        producer.produce("hung", framed(12_345, b"x"))
        producer.flush(30)
        shown.console.page("/topics", until="hung")
        found = events(shown.console, "/topics/hung/messages/records")
        assert [data["trouble"] for name, data in found if name == "rows"][-1] == "the schema registry has not answered yet"
        assert "00 00 00 30 39 78" in rows(found)
        assert shown.console.page(f"{MESSAGES}/0/0", until="shop.Order")  # what is known already needs no registry
    finally:
        shown.registry.is_open.set()

    def is_asked_again() -> bool:
        return not any(data["trouble"] for name, data in events(shown.console, f"{MESSAGES}/records") if name == "rows")

    wait_until(is_asked_again, 60.0, lambda: "a registry that was late is left alone for AGAIN_S, and this takes longer")


def test_browser_shows_schema_and_runs_nothing_of_it(browser: Browser, shown: Shown) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("dialog", lambda dialog: mistakes.append(dialog.message))
    address = f"http://localhost:{shown.console.port}{shown.console.base}{MESSAGES}"
    page.goto(address)
    expect(page.locator("#records tr")).to_have_count(len(RECORDS))
    expect(page.locator("#trouble")).to_be_hidden()
    for offset in (0, 3):
        page.goto(f"{address}/0/{offset}")
        page.get_by_text("Schema", exact=True).click()
        expect(page.get_by_text("<script>document", exact=False).first).to_be_visible()
        assert page.title() != "caught"
    context.close()
    assert mistakes == []
