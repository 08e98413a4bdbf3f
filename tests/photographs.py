"""Photographs of the console's newer pages for docs/console.md: `python -m tests.photographs` takes them, at brokers of its own;
`python -m tests.photographs console-log-in` those alone that are named.

They are kept with a palette of 256 colours, a third of the size; what has more colours than that are the edges of letters.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ScramMechanism
from playwright.sync_api import Browser, Page, expect, sync_playwright

import barnabas
from barnabas.cli.schemas.avro import AvroCodec
from tests.barnabas.console.conftest import Console
from tests.support.chromium import launch_options
from tests.support.schema_registry import SchemaRegistry
from tests.support.secured_cluster import SecuredCluster
from tests.support.sources import ROOT

FOLDER = ROOT / "docs" / "images"
WIDTH, COLORS = 1_280, 256
TOKEN, PATIENCE_MS = "a-token-for-a-photograph", 60_000
USER, PASSWORD = "alice", "a-password-for-a-photograph"
SCHEMA = {
    "type": "record", "name": "Order", "namespace": "shop", "doc": "What a customer has ordered.",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}]}}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}},
    ],
}  # fmt: skip
PIXELS = """async (png) => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), drawing = canvas.getContext("2d");
  drawing.drawImage(image, 0, 0);
  const data = drawing.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let at = 0; at < data.length; at += 32768) text += String.fromCharCode(...data.subarray(at, at + 32768));
  return [image.width, image.height, btoa(text)];
}"""


def fill(bootstrap: str) -> None:
    """Orders by their schema, 1, which a group has read a part of."""
    codec, producer = AvroCodec([json.dumps(SCHEMA)]), Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        lines = [{"sku": f"BOOK-{(number * 7 + line) % 40:03}", "count": 1 + (number + line) % 3} for line in range(1 + number % 2)]
        state = ("NEW", "PAID", "SENT")[number % 3]
        order = {"id": 4_200 + number, "customer": ("anna", "ben", "cleo")[number % 3], "lines": lines, "state": state}
        data = b"\0\0\0\0\1" + codec.encode(json.dumps(order).encode())
        producer.produce("orders", data, key=str(order["id"]), partition=number % 3, headers=[("source", b"shop")])
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", number, 12 + 3 * number) for number in range(3)], asynchronous=False)
    consumer.close()


def photographs(page: Page, console: Console) -> Iterator[str]:
    """Shows one page after another; the name that each has as a picture."""
    base = f"http://localhost:{console.port}{console.base}"
    page.goto(f"{base}/topics/orders/messages")
    expect(page.locator("#records tr")).to_have_count(60)
    yield "console-messages"
    page.set_viewport_size({"width": WIDTH, "height": 860})
    page.goto(f"{base}/topics/orders/messages/1/7")
    page.locator("section", has_text="Value").get_by_text("Schema", exact=True).first.click()
    page.evaluate("scrollTo(0, 0)")  # the click has scrolled
    yield "console-record"
    page.set_viewport_size({"width": WIDTH, "height": 520})
    page.goto(f"{base}/sign-in")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"{base}/new-topic")
    page.get_by_label("Name").fill("invoices")
    page.get_by_label("Partitions").fill("6")
    page.get_by_label("Configs").fill("retention.ms=604800000\ncleanup.policy=compact")
    yield "console-new-topic"
    page.goto(f"{base}/topics/orders/produce")
    page.get_by_label("Key", exact=True).fill("4260")
    page.get_by_label("Value").first.fill('{"id": 4260, "customer": "anna", "state": "NEW"}')
    page.get_by_label("Headers").fill("source=by hand")
    yield "console-produce"
    page.goto(f"{base}/reset?id=billing")
    page.get_by_label("To", exact=True).fill("-5")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("button", name="Set these 3 offsets")).to_be_visible()
    yield "console-reset"


def with_palette(width: int, height: int, pixels: Any) -> bytes:
    """A PNG of `pixels`, rows of red, green and blue (uint8): the most frequent colours, and for each other one the nearest of them."""
    packed = pixels.astype(np.uint32) @ np.array([65_536, 256, 1], np.uint32)
    found, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = found[np.argsort(-counts.astype(np.int64), kind="stable")[:COLORS]]
    parts = [np.stack([each >> 16, each >> 8 & 255, each & 255], axis=-1).astype(np.int64) for each in (found, kept)]
    nearest = np.array([((parts[1] - color) ** 2).sum(axis=1).argmin() for color in parts[0]], np.uint8)
    rows = nearest[places.reshape(height, width)]
    raw = b"".join(b"\0" + row.tobytes() for row in rows)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits, indexed colours
    palette = parts[1].astype(np.uint8).tobytes()
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"PLTE", palette)
        + chunk(b"IDAT", zlib.compress(raw, 9))
        + chunk(b"IEND", b"")
    )


def photographs_of_login(page: Page, console: Console) -> Iterator[str]:
    """A user of the cluster logs in, and may not do everything."""
    base = f"http://localhost:{console.port}{console.base}"
    page.goto(f"{base}/sign-in?next={console.base}/new-topic")
    page.get_by_label("User of").fill(USER)
    page.get_by_label("Password").fill(PASSWORD)
    yield "console-log-in"
    page.get_by_role("button", name="Log in").click()
    page.get_by_label("Name").fill("invoices")
    page.get_by_role("button", name="Create").click()
    expect(page.locator(".notice")).to_contain_text("AUTHORIZATION_FAILED")
    page.set_viewport_size({"width": WIDTH, "height": 550})
    page.emulate_media(color_scheme="dark")
    yield "console-logged-in-dark"


def write_context(home: Path, cluster: SecuredCluster) -> None:
    """The console's own login to the cluster, by the name that its pages show."""
    properties = cluster.administrator().librdkafka()
    lines = ['current = "shop"', "[contexts.shop]", f'bootstrap_servers = "{properties.pop("bootstrap.servers")}"']
    lines += ["[contexts.shop.properties]", *(f'"{key}" = "{value}"' for key, value in properties.items())]
    (home / "barnabas").mkdir()
    (home / "barnabas" / "config.toml").write_text("\n".join(lines))


def keep(browser: Browser, names: Iterator[str], page: Page, wanted: Sequence[str]) -> None:
    """Writes what `page` shows at each name; all if none are wanted."""
    other = browser.new_page()
    for name in names:
        if wanted and name not in wanted:
            continue
        taken = base64.b64encode(page.screenshot()).decode()
        width, height, text = other.evaluate(PIXELS, taken)
        pixels = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 4)[:, :3]
        (FOLDER / f"{name}.png").write_bytes(with_palette(width, height, pixels))


def take_forms(browser: Browser, wanted: Sequence[str]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        barnabas.Broker(topics={"orders": 3, "payments": 2}) as broker,
        SchemaRegistry({1: {"schema": json.dumps(SCHEMA, indent=2)}}) as registry,
    ):
        fill(broker.bootstrap_servers)
        token = Path(folder) / "token"
        token.write_text(TOKEN)
        words = ("-b", broker.bootstrap_servers, "--schema-registry", registry.url, "--token-file", str(token))
        console = Console(*words, environment={**os.environ, "XDG_CONFIG_HOME": folder})
        page = browser.new_page(viewport={"width": WIDTH, "height": 520}, color_scheme="light")
        console.page("/topics", until="orders")
        keep(browser, photographs(page, console), page, wanted)
        console.stop()


def take_login(browser: Browser, wanted: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, SecuredCluster(Path(folder)) as cluster:
        cluster.add_credential(USER, PASSWORD, ScramMechanism.SCRAM_SHA_512)
        write_context(Path(folder), cluster)
        console = Console("--allow-login", environment={**os.environ, "XDG_CONFIG_HOME": folder})
        page = browser.new_page(viewport={"width": WIDTH, "height": 330}, color_scheme="light")
        keep(browser, photographs_of_login(page, console), page, wanted)
        console.stop()


def main() -> None:
    wanted = sys.argv[1:]
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright, playwright.chromium.launch(**launch_options()) as browser:
        take_login(browser, wanted)
        take_forms(browser, wanted)


if __name__ == "__main__":
    main()
