"""A topic's messages: view, search, tail, one record, a download, at Barnabas and at Apache Kafka."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote

from confluent_kafka import Producer
from markupsafe import escape

from tests.barnabas.console.running import HOSTILE, RECORDS, TOPIC, Console
from tests.support.process import ServerProcess

MESSAGES = f"/topics/{TOPIC}/messages"


def events(console: Console, path: str) -> list[tuple[str, Any]]:
    """All of a stream that ends."""
    console.page("/topics", until=TOPIC)
    text = console.get(console.base + path).text
    return [
        (lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: ")))
        for each in text.split("\n\n")
        if (lines := each.splitlines())
    ]


def rows(found: list[tuple[str, Any]]) -> str:
    return "".join(data["html"] for name, data in found if name == "rows")


def test_view_shows_the_newest_or_those_from_a_place(console: Console) -> None:
    everything = rows(events(console, f"{MESSAGES}/records"))
    some = rows(events(console, f"{MESSAGES}/records?partition=1&from=2:4"))

    assert everything.count("<tr>") == RECORDS and "SKU-029" in everything
    assert some.count("<tr>") == 2 and "SKU-007" in some and "SKU-010" in some
    assert rows(events(console, f"{MESSAGES}/records?from=end")) == ""
    assert rows(events(console, f"{MESSAGES}/records?from=@-1d")).count("<tr>") == RECORDS


def test_search_reads_all_and_says_so(console: Console) -> None:
    for text, count in (("sku-02", 10), ("SKU-02", 10), ("Sku-02", 0), ("key-7", 1), ("shop", RECORDS), ("source", RECORDS), (".*", 0)):
        found = events(console, f"{MESSAGES}/records?mode=search&q={quote(text)}")
        counts = [data for name, data in found if name == "rows"][-1]
        assert (counts["found"], counts["read"], counts["total"]) == (count, RECORDS, RECORDS), text
        assert rows(found).count("<tr>") == count and found[-1] == ("done", {"error": "", "is_full": False})


def test_tail_shows_what_comes(console: Console, shown_server: ServerProcess) -> None:
    console.page("/topics", until=TOPIC)
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    connection.request("GET", f"{console.base}/topics/hostile/messages/records?mode=tail", headers={"Host": f"localhost:{console.port}"})
    stream = connection.getresponse()
    producer = Producer({"bootstrap.servers": shown_server.bootstrap, "linger.ms": 0})

    while True:  # the first events come before the tail stands at the end
        producer.produce("hostile", "it comes")
        producer.flush(30)
        line = stream.readline()
        if b"it comes" in line:
            break

    counts = json.loads(line.removeprefix(b"data: "))
    assert counts["read"] >= 1 and counts["total"] is None
    connection.close()


def test_what_is_in_records_is_text_and_no_page(console: Console) -> None:
    shown = rows(events(console, "/topics/hostile/messages/records?from=0:3"))
    record = console.page("/topics/hostile/messages/0/0")

    for html in (shown, record, console.page(f"/topics/hostile/messages?mode=search&q={quote(HOSTILE)}&from={quote(HOSTILE)}")):
        assert "<script>document" not in html and "<img" not in html and str(escape(HOSTILE)) in html
    assert record.count(str(escape(HOSTILE))) == 4  # key, value, a header's name and value
    assert "<small>hex</small> 00 ff fe" in shown and "<i>null</i>" in shown


def test_record_has_a_link(console: Console) -> None:
    page = console.page(f"{MESSAGES}/2/1")

    assert "&#34;sku&#34;: &#34;SKU-005&#34;" in page and "key-5" in page and "shop" in page
    for path, why in ((f"{MESSAGES}/2/999", "no record at offset 999"), (f"{MESSAGES}/9/0", "no partition 9")):
        answer = console.get(console.base + path)
        assert answer.status in (404, 502) and why in answer.text


def test_download_is_what_consume_prints(console: Console) -> None:
    console.page("/topics", until=TOPIC)
    answer = console.get(f"{console.base}{MESSAGES}.jsonl?q=sku-00")
    lines = [json.loads(line) for line in answer.text.splitlines()]

    assert sorted(json.loads(line["value"])["id"] for line in lines) == list(range(10))
    assert set(lines[0]) == {"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"}
    assert "attachment" in answer.headers["content-disposition"]


def test_what_is_not_understood_is_said(console: Console) -> None:
    page = console.page(f"{MESSAGES}?from=never", until="Messages")

    assert "is no offset" in page
    assert console.get(f"{console.base}/topics/nowhere/messages").status == 404
    assert console.get(f"{console.base}/topics/nowhere/messages/records").status == 502
