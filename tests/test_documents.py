"""The documents name what exists: the files that they link to, and the targets of the Makefile."""

from __future__ import annotations

import re

import pytest

from broker.server.version import VERSION
from tests.support.sources import ROOT

DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def links(text: str) -> list[str]:
    """The files that `text` links to, as it names them."""
    return re.findall(r"\]\((?!https?://)([^)#]+)", text)


def commands(text: str) -> list[str]:
    """The targets of make that `text` tells to run."""
    return re.findall(r"(?:`|^    )make ([a-z-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document

    assert [target for target in links(path.read_text()) if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_are_targets_of_the_makefile(document: str) -> None:
    assert set(commands((ROOT / document).read_text())) - TARGETS == set()


def test_the_changelog_begins_with_this_version() -> None:
    assert re.findall(r"^## ([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == VERSION


@pytest.mark.parametrize("document", DOCUMENTS)
def test_wheels_are_named_by_this_version(document: str) -> None:
    assert set(re.findall(r"barnabas-([0-9.]+)-py3", (ROOT / document).read_text())) <= {VERSION}


def test_links_and_commands_are_found() -> None:
    text = "    make run\nor `make test`, see [docs](docs/testing.md#here) and [Kafka](https://kafka.apache.org)"

    assert (links(text), commands(text)) == (["docs/testing.md"], ["run", "test"])
