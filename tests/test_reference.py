"""docs/reference says what the code says. Where a test fails here, run `python -m tests.reference`."""

from __future__ import annotations

import argparse
import re

import pytest

from barnabas.cli import verbs
from barnabas.cli.verbs import VERBS
from broker.cli.main import USAGE
from config.server import SERVER_PROPERTIES
from pipeline.cli import parser as pipeline_parser
from protocol.apis import APIS
from tests.reference import APIS_HEAD, FOLDER, MESSAGES_HEAD, REGENERATE, commands_page, metrics_page, properties_page, scrape, used_broker
from tests.reference_apis import apis_page, contract
from tests.reference_messages import advice, messages, messages_page
from tests.support.sources import ROOT

STALE = "run `python -m tests.reference`"


def test_properties_are_not_stale() -> None:
    assert (FOLDER / "properties.md").read_text(encoding="utf-8") == properties_page(), STALE


def test_commands_are_not_stale() -> None:
    assert (FOLDER / "commands.md").read_text(encoding="utf-8") == commands_page(), STALE


def test_apis_are_not_stale() -> None:
    assert (FOLDER / "apis.md").read_text(encoding="utf-8") == apis_page(APIS_HEAD), STALE


def test_every_api_says_which_versions_it_serves() -> None:
    assert [api.name for api in APIS.values() if "Serves v" not in contract(api)] == []


def test_messages_are_not_stale() -> None:
    assert (FOLDER / "messages.md").read_text(encoding="utf-8") == messages_page(MESSAGES_HEAD), STALE


def test_every_warning_and_error_has_advice() -> None:
    """In docs/reference/advice.toml. One that has a traceback is a defect if it has none."""
    told = {text for area in advice().values() for text in area}
    logged = {message.text: message for message in messages()}

    assert [text for text, message in logged.items() if text not in told and not message.has_traceback] == []
    assert told - logged.keys() == set(), "advice about what is logged no more"


def test_advice_names_commands_that_exist() -> None:
    named = re.findall(r"`barnabas ([^`]+)`", (FOLDER / "advice.toml").read_text(encoding="utf-8"))

    unknown = [words for words in named if not verbs.find(words.split()) and not re.search(rf"^  {words.split()[0]} ", USAGE, re.MULTILINE)]
    assert named and unknown == []


@pytest.mark.long("starts a broker")
def test_metrics_are_not_stale() -> None:
    """Each metric that is shown is on the page, in the same words."""
    page = (FOLDER / "metrics.md").read_text(encoding="utf-8")

    with used_broker() as port:
        shown = metrics_page(scrape(port))

    assert set(shown.splitlines()) - set(page.splitlines()) == set(), STALE
    assert shown.count("\n") > 100


def test_every_command_has_a_part() -> None:
    """Those that `barnabas --help` names, and every job of the pipeline."""
    page = (FOLDER / "commands.md").read_text(encoding="utf-8")
    parts = set(re.findall(r"^### barnabas (.+)$", page, re.MULTILINE))
    named = set(re.findall(r"^  ([a-z][a-z-]+) ", USAGE, re.MULTILINE))
    (jobs,) = (action.choices for action in pipeline_parser()._actions if isinstance(action, argparse._SubParsersAction))

    assert parts >= {" ".join(words) for words in VERBS} | {f"pipeline {job}" for job in jobs}
    assert {part.split()[0] for part in parts} == named


def test_every_property_of_a_broker_has_a_row_that_says_whether_it_has_an_effect() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \|(?: (?:\\\||[^|])+ \|){4} (yes|no) \|", properties_page(), re.MULTILINE))

    assert rows.keys() >= {name for name, known in SERVER_PROPERTIES.items() if not known.is_internal}
    assert (rows["num.io.threads"], rows["log.retention.hours"]) == ("no", "yes")


def test_every_page_says_how_it_is_made() -> None:
    assert all(REGENERATE in page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
