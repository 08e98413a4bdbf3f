"""As much of PromQL as tells, without Prometheus, whether a scrape has what a query asks for: its selectors, by name and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

SELECTOR = re.compile(r"\b((?:kafka|barnabas|process|jvm|container|kubelet)_\w+|up)\b(?:\s*\{([^}]*)\})?")
MATCHER = re.compile(r"""(\w+)\s*(=~|!~|!=|=)\s*(["'])(.*?)\3""")
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
FOREIGN = ("jvm_", "container_", "kubelet_")
"""The prefixes of what a broker cannot tell: of a Java machine, and of what Kubernetes knows."""


class Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]


def with_variables(query: str, variables: Mapping[str, str]) -> str:
    """The query as Grafana sends it."""
    return VARIABLE.sub(lambda found: variables[found[1]], query)


def selectors(query: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The metrics in the query: the name, and matchers of label, operator and value."""
    return [
        (name, [(label, operator, value) for label, operator, _, value in MATCHER.findall(rest)]) for name, rest in SELECTOR.findall(query)
    ]


def is_foreign(query: str) -> bool:
    return any(name.startswith(FOREIGN) for name, _ in selectors(query))


def read_samples(scrape: str, labels: Mapping[str, str]) -> Iterator[Sample]:
    """What a scrape says, with the labels that the scrape's configuration adds."""
    for family in text_string_to_metric_families(scrape):
        for sample in family.samples:
            yield Sample(sample.name, {**sample.labels, **labels})


def missing(query: str, samples: Mapping[str, Iterable[Mapping[str, str]]]) -> list[str]:
    """The selectors of the query that no sample answers; `samples` are labels by name. A query without a selector asks for nothing."""
    found = selectors(query)
    assert found, f"no metric in {query}"
    return [name for name, matchers in found if not any(_matches(labels, matchers) for labels in samples.get(name, ()))]


def _matches(labels: Mapping[str, str], matchers: Iterable[tuple[str, str, str]]) -> bool:
    """A label that is not there is an empty one."""
    return all(_holds(labels.get(label, ""), operator, value) for label, operator, value in matchers)


def _holds(found: str, operator: str, value: str) -> bool:
    is_equal = re.fullmatch(value.replace("\\\\", "\\"), found) is not None if "~" in operator else found == value
    return is_equal is not operator.startswith("!")
