"""Fixtures for tests that need a broker. pytest finds this module where Barnabas is installed; it costs nothing until it is used.

- `barnabas_broker`: one running broker for the whole session (under pytest-xdist: for each worker); a test that is marked has its own.
- `barnabas_topic`: the name of a new topic on it, for one test.
- `@pytest.mark.barnabas(config={…}, topics={…})`: a broker of the test's own. Marks of class and module count too, the nearest wins.
- `barnabas_cluster`: three running brokers of one cluster for the whole session.
- `barnabas_config`: override it, with session scope, to give every broker of the session settings.

A failed test's report shows the end of the log of each broker that ran during it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ._broker import Broker
    from ._cluster import Cluster
    from ._process import BrokerProcess

MARKER = "barnabas"
LINE = "barnabas(config={…}, topics={…}): give the test a broker of its own, with these properties and topics (name: partitions)"
TOPIC_STEM_MAX = 60  # characters; Kafka allows 249 in all
shared_broker = pytest.StashKey["Broker"]()
shared_cluster = pytest.StashKey["Cluster"]()
own_count = pytest.StashKey[int]()
own_brokers = pytest.StashKey[list["OwnBroker"]]()


class OwnBroker:
    """What a marked test asks for. Compared by identity: no two tests share a broker, however alike their marks."""

    def __init__(self, config: Mapping[str, object], topics: Mapping[str, int | None]) -> None:
        self.config = config
        self.topics = topics
        self.broker: Broker | None = None


# -- fixtures -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def barnabas_config() -> dict[str, object]:
    """Broker properties for every broker of the session; override it in your conftest.py, with session scope."""
    return {}


@pytest.fixture(scope="session")
def barnabas_broker(request: pytest.FixtureRequest, barnabas_config: Mapping[str, object]) -> Iterator[Broker]:
    """A running `barnabas.Broker`: the session's, or the test's own where it is marked."""
    own: OwnBroker | None = getattr(request, "param", None)
    if own is None:
        yield request.getfixturevalue("_barnabas_shared_broker")
        return
    from ._broker import Broker

    request.config.stash.setdefault(own_brokers, []).append(own)
    with Broker({**barnabas_config, **own.config}, own.topics) as own.broker:
        yield own.broker
    request.config.stash[own_brokers].remove(own)


@pytest.fixture(scope="session")
def _barnabas_shared_broker(pytestconfig: pytest.Config, barnabas_config: Mapping[str, object]) -> Iterator[Broker]:
    """Beside `barnabas_broker`, which pytest takes down for each marked test."""
    from ._broker import Broker

    with Broker(barnabas_config) as broker:
        pytestconfig.stash[shared_broker] = broker
        yield broker


@pytest.fixture(scope="session")
def barnabas_cluster(pytestconfig: pytest.Config, barnabas_config: Mapping[str, object]) -> Iterator[Cluster]:
    """A running `barnabas.Cluster` of three brokers, the session's."""
    from ._cluster import Cluster

    with Cluster(config=barnabas_config) as cluster:
        pytestconfig.stash[shared_cluster] = cluster
        yield cluster


@pytest.fixture
def barnabas_topic(request: pytest.FixtureRequest, barnabas_broker: Broker) -> str:
    """The name of a topic that was made for this test, with the broker's num.partitions (1)."""
    import os

    stem = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in request.node.name)[:TOPIC_STEM_MAX]
    name = f"{stem}-{os.urandom(4).hex()}"
    barnabas_broker.create_topic(name)
    return name


# -- hooks --------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", LINE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A mark becomes the fixture's parameter: what else depends on the broker, at any scope, is then made anew for the test as well."""
    marks = list(metafunc.definition.iter_markers(MARKER))
    if marks and "barnabas_broker" in metafunc.fixturenames:
        hidden: Any = getattr(pytest, "HIDDEN_PARAM", MARKER)  # pytest before 8.4 shows it in the test's id
        metafunc.parametrize("barnabas_broker", [_own_broker(marks)], indirect=True, ids=[hidden])


def pytest_itemcollected(item: pytest.Item) -> None:
    """One function can be many tests; pytest would let those with the same parameter share a broker, and put them side by side."""
    own = _own_broker_of(item)
    if own is not None:
        callspec: Any = item.callspec  # type: ignore[attr-defined]
        item.config.stash[own_count] = number = item.config.stash.get(own_count, 0) + 1
        callspec.params["barnabas_broker"] = OwnBroker(own.config, own.topics)
        callspec.indices["barnabas_broker"] = number


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a test: the session's broker and cluster run, whatever the last test did to them."""
    if _cannot_be_given_its_broker(item):
        pytest.fail("@pytest.mark.barnabas has no effect here: the test must be a function that names barnabas_broker", pytrace=False)
    broker = item.config.stash.get(shared_broker, None)
    if broker is not None and not broker.is_running:
        broker.restart()
    cluster = item.config.stash.get(shared_cluster, None)
    if cluster is not None and "barnabas_cluster" in getattr(item, "fixturenames", ()):
        cluster.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for process in _brokers_of(item, call.start):
            if lines := process.log_lines():
                report.sections.append((f"Barnabas {process.ready.get('bootstrap_servers', '')}, end of its log", "\n".join(lines)))
    return report


# -- helpers ------------------------------------------------------------------------------------------------------


def _own_broker(marks: list[pytest.Mark]) -> OwnBroker:
    config: dict[str, object] = {}
    from ._create_topic import partitions_by_topic

    topics: dict[str, int | None] = {}
    for mark in reversed(marks):  # the nearest comes first
        if mark.args or mark.kwargs.keys() - {"config", "topics"}:
            pytest.fail(f"not understood: {MARKER}{mark.args or ''} {mark.kwargs}; it is {LINE.partition(':')[0]}", pytrace=False)
        config |= mark.kwargs.get("config", {})
        topics |= partitions_by_topic(mark.kwargs.get("topics", ()))
    return OwnBroker(config, topics)


def _own_broker_of(item: pytest.Item) -> OwnBroker | None:
    callspec = getattr(item, "callspec", None)
    param = None if callspec is None else callspec.params.get("barnabas_broker")
    return param if isinstance(param, OwnBroker) else None  # a project may give the fixture parameters of its own


def _cannot_be_given_its_broker(item: pytest.Item) -> bool:
    """A marked test that would get the session's broker in silence: of unittest.TestCase, whose methods take no parameters."""
    is_marked = item.get_closest_marker(MARKER) is not None
    return is_marked and "barnabas_broker" in getattr(item, "fixturenames", ()) and _own_broker_of(item) is None


def _brokers_of(item: pytest.Item, time_s: float) -> list[BrokerProcess]:
    """The brokers of this process that a test may have used from then on: those of its fixtures, and those that it made.

    The own broker of an earlier test runs until a test asks for another, or the session ends.
    """
    module = sys.modules.get(f"{__package__}._process")
    if module is None:
        return []
    own, others = _own_broker_of(item), item.config.stash.get(own_brokers, [])
    of_others = [other.broker._process for other in others if other is not own and other.broker is not None]
    return [
        process for process in module.known() if process not in of_others and (process.released_at is None or process.released_at >= time_s)
    ]
