"""Fixtures for tests that need a broker. pytest finds this module where Barnabas is installed; it costs nothing until it is used.

- `barnabas_broker`: one running broker for the whole session (under pytest-xdist: for each worker); a test that is marked has its own.
- `barnabas_cluster`: the same with a cluster, of three running brokers.
- `barnabas_topic`: the name of a new topic on whichever of the two the test uses, for one test.
- `@pytest.mark.barnabas(config={…}, topics={…}, brokers=N, secure=True)`: a broker, or a cluster of N brokers, of the test's own, which
  with `secure` has TLS and SASL. Marks of class and module count too, the nearest wins.
- `barnabas_config`: override it, with session scope, to give every broker of the session settings.

A failed test's report shows the end of the log of each broker that it used.

A mark becomes the parameter of the fixture `_barnabas_mark`, on which the others depend: pytest then sets up all
fixtures again that depend on the broker, of any scope, for a marked test.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

if TYPE_CHECKING:
    from ._broker import Broker
    from ._cluster import Cluster
    from ._process import BrokerProcess

MARKER = "barnabas"
FORM = "barnabas(config={…}, topics={…}, brokers=N, secure=True)"
LINE = f"{FORM}: a broker, or a cluster of N brokers, of the test's own, with these properties and topics (name: partitions)"
PARAMETER = "_barnabas_mark"
BROKER, CLUSTER, TOPIC = "barnabas_broker", "barnabas_cluster", "barnabas_topic"
SHARED_BROKER, SHARED_CLUSTER = "_barnabas_shared_broker", "_barnabas_shared_cluster"
BROKERS_DEFAULT = 3
TOPIC_STEM_MAX = 60  # characters; Kafka allows 249 in all

shared_broker = pytest.StashKey["Broker"]()
shared_cluster = pytest.StashKey["Cluster"]()
own_count = pytest.StashKey[int]()
tests_began_s = pytest.StashKey[float]()
"""When the session's first test, and when a test began: time.time()."""
makers = pytest.StashKey["WeakKeyDictionary[BrokerProcess, tuple[str, str]]"]()
"""The name of the fixture that made a broker, and the node below which that fixture is visible."""


class Own:
    """What a marked test asks for. Compared by identity: no two tests share a broker, however alike their marks."""

    def __init__(self, marks: list[pytest.Mark]) -> None:
        """`marks` from the nearest on. What is wrong with them is told when the test runs: its report names it."""
        self.config: dict[str, object] = {}
        self.topics: dict[str, int | None] = {}
        self.brokers: int | None = None
        self.is_secure = False
        self.fault = ""
        try:
            for mark in reversed(marks):
                self._take(mark)
        except TypeError as e:
            self.fault = str(e)

    def _take(self, mark: pytest.Mark) -> None:
        from ._create_topic import partitions_by_topic

        if mark.args or mark.kwargs.keys() - {"config", "topics", "brokers", "secure"}:
            words = [*map(repr, mark.args), *(f"{key}={value!r}" for key, value in mark.kwargs.items())]
            raise TypeError(f"{MARKER}({', '.join(words)}) is not understood; it is {FORM}")
        config = mark.kwargs.get("config", {})
        if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):
            raise TypeError(f'config is {{"num.partitions": 3}}, property names and values, not {config!r}')
        brokers = mark.kwargs.get("brokers", self.brokers)
        if brokers is not None and (not isinstance(brokers, int) or isinstance(brokers, bool) or brokers < 1):
            raise TypeError(f"brokers is a number from 1 on, not {brokers!r}")
        is_secure = mark.kwargs.get("secure", self.is_secure)
        if not isinstance(is_secure, bool):
            raise TypeError(f"secure is True or False, not {is_secure!r}")
        self.config |= config
        self.topics |= partitions_by_topic(mark.kwargs.get("topics", ()))
        self.brokers = brokers
        self.is_secure = is_secure


# -- fixtures -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def barnabas_config() -> dict[str, object]:
    """Broker properties for every broker of the session; override it in your conftest.py, with session scope."""
    return {}


@pytest.fixture(scope="session")
def _barnabas_mark(request: pytest.FixtureRequest) -> Own | None:
    """What the test's marks ask for; None where it has none."""
    own: Own | None = getattr(request, "param", None)
    return own


@pytest.fixture(scope="session")
def barnabas_broker(request: pytest.FixtureRequest, barnabas_config: Mapping[str, object], _barnabas_mark: Own | None) -> Iterator[Broker]:
    """A running `barnabas.Broker`: the session's, or the test's own where it is marked."""
    if _barnabas_mark is None:
        yield request.getfixturevalue(SHARED_BROKER)
        return
    from ._broker import Broker

    own = _barnabas_mark
    with Broker({**barnabas_config, **own.config}, own.topics, secure=own.is_secure) as broker:
        yield broker


@pytest.fixture(scope="session")
def barnabas_cluster(
    request: pytest.FixtureRequest, barnabas_config: Mapping[str, object], _barnabas_mark: Own | None
) -> Iterator[Cluster]:
    """A running `barnabas.Cluster`: the session's, of three brokers, or the test's own where it is marked."""
    if _barnabas_mark is None:
        yield request.getfixturevalue(SHARED_CLUSTER)
        return
    from ._cluster import Cluster

    own = _barnabas_mark
    with Cluster(own.brokers or BROKERS_DEFAULT, {**barnabas_config, **own.config}, own.topics, secure=own.is_secure) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _barnabas_shared_broker(pytestconfig: pytest.Config, barnabas_config: Mapping[str, object]) -> Iterator[Broker]:
    """Beside `barnabas_broker`, which pytest takes down for each marked test."""
    from ._broker import Broker

    with Broker(barnabas_config) as broker:
        pytestconfig.stash[shared_broker] = broker
        yield broker


@pytest.fixture(scope="session")
def _barnabas_shared_cluster(pytestconfig: pytest.Config, barnabas_config: Mapping[str, object]) -> Iterator[Cluster]:
    """Beside `barnabas_cluster`, as the broker."""
    from ._cluster import Cluster

    with Cluster(BROKERS_DEFAULT, barnabas_config) as cluster:
        pytestconfig.stash[shared_cluster] = cluster
        yield cluster


@pytest.fixture
def barnabas_topic(request: pytest.FixtureRequest, _barnabas_mark: Own | None) -> str:
    """The name of a topic that was made for this test, with the default of partitions (1): on the broker, or on the cluster where the test
    names that, or on both."""
    import os

    stem = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in request.node.name)[:TOPIC_STEM_MAX]
    name = f"{stem}-{os.urandom(4).hex()}"
    for fixture in _used_fixtures(request.node) & {BROKER, CLUSTER}:
        request.getfixturevalue(fixture).create_topic(name)
    return name


# -- hooks --------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", LINE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if PARAMETER in metafunc.fixturenames and metafunc.definition.get_closest_marker(MARKER) is not None:
        hidden: Any = getattr(pytest, "HIDDEN_PARAM", MARKER)  # pytest before 8.4 shows it in the test's id
        metafunc.parametrize(PARAMETER, [Own([])], indirect=True, ids=[hidden])


def pytest_itemcollected(item: pytest.Item) -> None:
    """One function can be many tests; pytest would let those with the same parameter share a broker, and put them side by side."""
    if _own_of(item) is not None:
        callspec: Any = item.callspec  # type: ignore[attr-defined]
        item.config.stash[own_count] = number = item.config.stash.get(own_count, 0) + 1
        of_parameters = [mark for mark in callspec.marks if mark.name == MARKER]  # pytest.param(…, marks=…) is nearer than the function
        others = [mark for mark in item.iter_markers(MARKER) if mark not in of_parameters]
        callspec.params[PARAMETER] = Own([*of_parameters, *others])
        callspec.indices[PARAMETER] = number


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    session.config.stash[tests_began_s] = time.time()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a test: the session's broker and cluster run, whatever the last test did to them."""
    item.stash[tests_began_s] = time.time()
    if fault := _find_fault(item):
        pytest.fail(f"@pytest.mark.barnabas: {fault}", pytrace=False)
    broker = item.config.stash.get(shared_broker, None)
    if broker is not None and not broker.is_running:
        broker.restart()
    cluster = item.config.stash.get(shared_cluster, None)
    if cluster is not None and SHARED_CLUSTER in _used_fixtures(item):
        cluster.start()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Note which brokers a fixture has made: the report of a test that uses it shows their logs."""
    before = _known()
    value = yield
    by_process = request.config.stash.setdefault(makers, WeakKeyDictionary())
    for process in _known():
        if process not in before:  # fixtures that this one asked for have noted theirs already
            by_process.setdefault(process, (fixturedef.argname, fixturedef.baseid))
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for process in _brokers_of(item, call):
            if lines := process.log_lines():
                name = f"Barnabas {process.ready['bootstrap_servers']}" if process.ready else "Barnabas, which did not start"
                report.sections.append((f"{name}, end of its log", "\n".join(lines)))
    return report


# -- helpers ------------------------------------------------------------------------------------------------------


def _own_of(item: pytest.Item) -> Own | None:
    callspec = getattr(item, "callspec", None)
    own: Own | None = None if callspec is None else callspec.params.get(PARAMETER)
    return own


def _used_fixtures(item: pytest.Item) -> set[str]:
    """The names of the test's fixtures, with those that the plugin's own ask for while they are made."""
    names = set(getattr(item, "fixturenames", ()))
    if TOPIC in names and CLUSTER not in names:
        names.add(BROKER)
    if _own_of(item) is None:
        names |= {shared for name, shared in ((BROKER, SHARED_BROKER), (CLUSTER, SHARED_CLUSTER)) if name in names}
    return names


def _find_fault(item: pytest.Item) -> str:
    """What is wrong with a test's marks, so that it would not get what they ask for; "" if nothing is."""
    if item.get_closest_marker(MARKER) is None:
        return ""
    own, names = _own_of(item), _used_fixtures(item)
    if own is None:
        is_its_own = any(mark.name == MARKER for mark in item.own_markers)
        if names & {BROKER, CLUSTER, TOPIC} or is_its_own:
            which = f"a test function that names {BROKER}, {CLUSTER} or {TOPIC}, or the function's class or module"
            return f"it has no effect here; mark {which}"
        return ""  # a module's mark, and a test that needs no broker
    if own.brokers is not None and CLUSTER not in names:
        return f"brokers={own.brokers} has no effect here: the test must name {CLUSTER}"
    return own.fault


def _known() -> list[BrokerProcess]:
    """The brokers of this process, if it ever had any."""
    module = sys.modules.get(f"{__package__}._process")
    return [] if module is None else list(module.known())


def _brokers_of(item: pytest.Item, call: pytest.CallInfo[None]) -> list[BrokerProcess]:
    """The brokers that a test used in a phase: those of its fixtures, and those that were made while it ran or before any test did. What
    other tests and their fixtures have made is left out, also if it still runs."""
    names = _used_fixtures(item)
    by_process = item.config.stash.setdefault(makers, WeakKeyDictionary())
    first_test_s, test_s = item.config.stash.get(tests_began_s, 0.0), item.stash.get(tests_began_s, 0.0)

    def is_used(process: BrokerProcess) -> bool:
        released_s, is_made_here = process.released_at, process.made_at >= test_s
        # A test's setup ends what only the test before it needed.
        if released_s is not None and (released_s < call.start or (call.when == "setup" and not is_made_here)):
            return False
        fixture, below = by_process.get(process, ("", ""))
        is_of_fixture = fixture in names and item.nodeid.startswith(below)
        return is_of_fixture or is_made_here or process.made_at < first_test_s

    return [process for process in _known() if is_used(process)]
