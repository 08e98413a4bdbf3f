"""Each page, by HTTP, at Barnabas and at Apache Kafka."""

from __future__ import annotations

from urllib.parse import quote

from markupsafe import escape

from tests.barnabas.console.running import BEHIND, HOSTILE, TOPIC, Console


def test_overview_has_the_cluster(console: Console) -> None:
    page = console.page("", until="Metadata quorum")

    assert "✓ 0" in page and "<b>leader</b>" in page and f'group?id={BEHIND}"' in page


def test_topics_are_sorted_filtered_and_counted(console: Console) -> None:
    page = console.page("/topics?sort=name&desc=1", until="orders")

    assert page.index("/topics/orders") < page.index("/topics/hostile") and f">{BEHIND}</a>" in page
    most, fewest = (console.page(f"/topics?sort=records&desc={desc}", until="orders") for desc in (1, 0))
    assert (most.index("/topics/orders") < most.index("/topics/hostile")) != (
        fewest.index("/topics/orders") < fewest.index("/topics/hostile")
    )
    filtered = console.page("/topics?filter=ORD", until="orders")
    assert "/topics/hostile" not in filtered and 'value="ORD"' in filtered
    assert "No topic has that in its name" in console.page("/topics?filter=.*")
    assert "__consumer_offsets" not in page and "__consumer_offsets" in console.page("/topics?internal=1")


def test_topic_has_partitions_readers_and_settings(console: Console) -> None:
    page = console.page(f"/topics/{TOPIC}", until="7200000")

    assert page.count("?partition=") == 3 and f">{BEHIND}</a>" in page and "compression.type" not in page
    everything = console.page(f"/topics/{TOPIC}?configs=all")
    assert "compression.type" in everything and everything.count("<p>") > 20 and "604800000" in everything
    assert console.get(f"{console.base}/topics/nowhere").status == 404


def test_group_has_lag_in_records_and_in_time(console: Console) -> None:
    groups = console.page("/groups?sort=name&desc=0", until=BEHIND)
    page = console.page(f"/group?id={BEHIND}", until="Committed")

    assert groups.index(str(escape(HOSTILE))) < groups.index(f">{BEHIND}</a>")
    assert "<dt>Lag</dt><dd>10</dd>" in page and "<dt>Behind</dt><dd>–</dd>" not in page
    assert console.get(f"{console.base}/group?id=nobody").status == 404


def test_settings_of_a_broker(console: Console) -> None:
    page = console.page("/configs?all=1&filter=log.retention", until="log.retention.hours")

    assert "all brokers" in page and "<p>" in page and "num.partitions" not in page


def test_names_are_text_and_no_page(console: Console) -> None:
    for path in (
        "",
        "/groups",
        "/topics",
        f"/group?id={quote(HOSTILE)}",
        f"/topics?filter={quote(HOSTILE)}",
        f"/group?id={quote(HOSTILE + '!')}",
    ):
        text = console.get(console.base + path, x_again="1").text
        assert "<script>document" not in text and "<img" not in text, path
    assert str(escape(HOSTILE)) in console.page(f"/group?id={quote(HOSTILE)}")


def test_addresses_without_a_meaning(console: Console) -> None:
    for path in ("/topics?page=-1&sort=__class__&desc=x", "/topics?page=99999999999999999999", "/groups?page=²", "/configs?broker=../x"):
        assert console.get(console.base + quote(path, safe="/?=&%")).status == 200, path
    assert console.get("/c/elsewhere").status == 404 and console.get("/static/../app.py").status == 404


def test_tick_comes_when_the_cluster_was_asked(console: Console) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    connection.request("GET", f"{console.base}/ticks", headers={"Host": f"localhost:{console.port}"})
    stream = connection.getresponse()

    assert stream.getheader("content-type", "").startswith("text/event-stream") and stream.readline() == b"event: tick\n"
    connection.close()
