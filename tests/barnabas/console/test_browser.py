"""Each page in a real Chromium, at Barnabas and at Apache Kafka: opened, used by mouse and keys, and tried with hostile records.

`BARNABAS_TEST_PHOTOGRAPHS=DIR` keeps photographs of what was seen.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect

from tests.barnabas.console.logins import ALICE, SECURED, LoginConsole
from tests.barnabas.console.running import BEHIND, HOSTILE, TOPIC, Console
from tests.support.process import ServerProcess

PATIENCE_MS = 60_000
PHOTOGRAPHS = os.environ.get("BARNABAS_TEST_PHOTOGRAPHS", "")


@pytest.fixture
def page(browser: Browser, console: Console) -> Iterator[Page]:
    with careful_page(browser, console) as opened:
        yield opened


@contextlib.contextmanager
def careful_page(browser: Browser, console: Console, *, refused_count: int = 0) -> Iterator[Page]:
    """A page whose script made no mistake, that loaded nothing from elsewhere and ran nothing that was forbidden. Chromium counts answers
    of 400 as mistakes: `refused_count` of them are meant."""
    context = browser.new_context(base_url=f"http://localhost:{console.port}", viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    mistakes: list[str] = []
    opened.on("pageerror", lambda error: mistakes.append(str(error)))
    opened.on("console", lambda message: mistakes.append(message.text) if message.type == "error" else None)
    opened.on("dialog", lambda dialog: mistakes.append(dialog.message))
    opened.on("request", lambda request: mistakes.append(request.url) if f"localhost:{console.port}" not in request.url else None)
    yield opened
    context.close()
    assert [each for each in mistakes if "status of 400" not in each] == [] and len(mistakes) == refused_count


@pytest.fixture(autouse=True)
def patience() -> None:
    expect.set_options(timeout=PATIENCE_MS)


def photograph(page: Page, name: str) -> None:
    if PHOTOGRAPHS:
        page.screenshot(path=Path(PHOTOGRAPHS) / f"{name}.png")


def test_from_the_overview_to_a_group_by_keys(page: Page, console: Console) -> None:
    page.goto(console.base)
    expect(page.get_by_text("Metadata quorum")).to_be_visible()
    photograph(page, "overview")

    page.keyboard.press("g")
    expect(page.get_by_role("link", name=BEHIND, exact=True)).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("tr.here")).to_contain_text(BEHIND)
    photograph(page, "groups")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=BEHIND)).to_be_visible()
    expect(page.locator("dl.facts")).to_contain_text("10")
    photograph(page, "group")


def test_topics_are_filtered_and_opened(page: Page, console: Console) -> None:
    page.goto(f"{console.base}/topics")
    expect(page.get_by_role("link", name=TOPIC, exact=True)).to_be_visible()
    photograph(page, "topics")
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="hostile", exact=True)).to_have_count(0)
    page.get_by_role("link", name=TOPIC, exact=True).click()
    expect(page.get_by_text("retention.ms", exact=True)).to_be_visible()
    page.get_by_text("retention.ms", exact=True).click()
    expect(page.locator("#doc-retention\\.ms p")).to_be_visible()
    photograph(page, "topic")


def test_messages_are_searched_and_opened(page: Page, console: Console) -> None:
    page.goto(f"{console.base}/topics/{TOPIC}/messages")
    expect(page.locator("#records tr")).to_have_count(30)
    photograph(page, "messages")
    page.get_by_label("Search").fill("SKU-017")
    page.get_by_role("button", name="Search all").click()
    expect(page.locator("#counts")).to_contain_text("1 found in 30 of 30 read")
    photograph(page, "search")
    page.locator("#records a").click()
    expect(page.locator("pre").nth(1)).to_contain_text('"sku": "SKU-017"')
    photograph(page, "message")


def test_tail_counts_and_keeps_the_newest(page: Page, console: Console, shown_server: ServerProcess) -> None:
    producer = Producer({"bootstrap.servers": shown_server.bootstrap})
    for number in range(500):
        producer.produce("hostile", f"{number}")
    producer.flush(30)
    page.goto(f"{console.base}/topics/hostile/messages?mode=tail&from=-400")

    expect(page.locator("#records tr")).to_have_count(200)
    photograph(page, "tail")
    page.keyboard.press("Space")
    expect(page.locator("#pause")).to_have_text("Go on")


def test_hostile_records_and_names_run_nothing(page: Page, console: Console) -> None:
    for path in ("/topics/hostile/messages?from=0:3", "/topics/hostile/messages/0/0", "/groups", f"/group?id={quote(HOSTILE)}"):
        page.goto(console.base + path)
        expect(page.get_by_text("<script>document", exact=False).first).to_be_visible()
        assert page.title() != "caught"


def test_phone_shows_each_page_in_the_dark_without_scrolling_sideways(browser: Browser, console: Console) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = context.new_page()
    for path in ("", "/topics", f"/topics/{TOPIC}", f"/topics/{TOPIC}/messages", "/groups", f"/group?id={BEHIND}", "/configs"):
        page.goto(f"http://localhost:{console.port}{console.base}{path}")
        expect(page.locator("main h1, main h2").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        photograph(page, f"phone{path.partition('?')[0].replace('/', '-')}")
    context.close()


@pytest.mark.parametrize("login_console", ["barnabas"], indirect=True)
def test_user_of_the_cluster_logs_in_changes_something_is_refused_and_leaves(browser: Browser, login_console: LoginConsole) -> None:
    with careful_page(browser, login_console.console, refused_count=1) as page:
        page.goto(f"/c/{SECURED}/topics")
        page.get_by_role("link", name="Sign in").click()
        page.get_by_label("User of").fill(ALICE[0])
        page.get_by_label("Password").fill(ALICE[1])
        photograph(page, "log-in")
        page.get_by_role("button", name="Log in").click()
        expect(page.locator(".who.user")).to_have_text(ALICE[0])
        assert not page.evaluate("document.cookie") and ALICE[1] not in page.content()

        page.goto(f"/c/{SECURED}/topics")
        page.get_by_role("link", name="New topic").click()
        page.get_by_label("Name").fill("made-in-a-browser")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", name="made-in-a-browser")).to_be_visible()
        page.get_by_role("link", name="Produce").click()
        page.get_by_label("Value", exact=True).fill("by hand")
        page.get_by_role("button", name="Produce").click()
        expect(page.locator("pre").first).to_have_text("by hand")

        page.goto(f"/c/{SECURED}/new-topic")
        page.get_by_label("Name").fill("forbidden")
        with page.expect_response(lambda answer: answer.request.method == "POST") as refused:
            page.get_by_role("button", name="Create").click()
        assert refused.value.status == 400
        expect(page.locator(".notice")).to_contain_text("AUTHORIZATION_FAILED")
        photograph(page, "log-in-refused")

        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("link", name="Sign in")).to_be_visible()
        page.goto(f"/c/{SECURED}/new-topic")
        expect(page.get_by_role("button", name="Log in")).to_be_visible()
