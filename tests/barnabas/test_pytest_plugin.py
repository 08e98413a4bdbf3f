"""The pytest plugin as users have it: the wheel is installed, pytest finds the plugin by itself, in a project of a few lines."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.installed import Project

needs_xdist = pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is missing; install it with: make test")

SHARED = """
import pytest

@pytest.fixture(scope="session")
def address(barnabas_broker):
    return barnabas_broker.bootstrap_servers

seen = []

@pytest.mark.parametrize("number", range(3))
def test_shared(barnabas_broker, barnabas_topic, address, number):
    assert address == barnabas_broker.bootstrap_servers and barnabas_broker.is_running
    with pytest.raises(Exception, match="already exists"):
        barnabas_broker.create_topic(barnabas_topic)
    seen.append((address, barnabas_topic))
    assert len({address for address, topic in seen}) == 1 and len({topic for address, topic in seen}) == len(seen)
"""

MARKED = """
import pytest, socket

addresses = []

def note(broker):
    addresses.append(broker.bootstrap_servers)
    return broker.bootstrap_servers

@pytest.fixture(scope="session")
def address(barnabas_broker):
    return barnabas_broker.bootstrap_servers

def test_first(barnabas_broker):
    note(barnabas_broker)

@pytest.mark.barnabas(config={"num.partitions": 7}, topics={"orders": 2})
def test_own(barnabas_broker, address):
    assert note(barnabas_broker) == address
    with pytest.raises(Exception, match="already exists"):
        barnabas_broker.create_topic("orders")

def test_shared_again(barnabas_broker, address):
    assert note(barnabas_broker) == addresses[0] == address

@pytest.mark.barnabas(topics={"orders": 2})
class TestNearest:
    @pytest.mark.barnabas(topics={"payments": 2})
    def test_both(self, barnabas_broker):
        for topic in ("orders", "payments"):
            with pytest.raises(Exception, match="already exists"):
                barnabas_broker.create_topic(topic)
        note(barnabas_broker)

    def test_equal_marks_share_nothing(self, barnabas_broker):
        note(barnabas_broker)
        barnabas_broker.create_topic("payments")

@pytest.mark.parametrize("number", range(2))
@pytest.mark.barnabas
def test_parameters(barnabas_broker, number):
    note(barnabas_broker)

def test_each_own_broker_was_another():
    assert addresses[2] == addresses[0] and len(set(addresses)) == len(addresses) - 1 == 6
"""


def test_the_session_s_broker_and_a_topic_for_each_test(project: Project) -> None:
    outcome = project.pytest(code=SHARED)

    assert outcome.outcomes == {"passed": 3}, outcome
    assert project.leftovers() == []


@pytest.mark.parametrize("arguments", ["", "--import-mode=importlib", "-W error --strict-markers -p no:asyncio"])
def test_marked_tests_have_brokers_of_their_own_in_the_order_of_the_file(project: Project, arguments: str) -> None:
    outcome = project.pytest(*arguments.split(), code=MARKED)

    assert outcome.outcomes == {"passed": 8}, outcome
    assert project.leftovers() == []


def test_a_mark_does_not_change_a_test_s_name(project: Project) -> None:
    outcome = project.pytest("--collect-only", "-q", code=MARKED)

    assert "test_it.py::test_own\n" in outcome.output


CLUSTERS = """
import pytest

@pytest.fixture(scope="session")
def address(barnabas_cluster):
    return barnabas_cluster.bootstrap_servers

def test_shared(barnabas_cluster, address):
    assert address == barnabas_cluster.bootstrap_servers and len(barnabas_cluster.brokers) == 3

@pytest.mark.barnabas(config={"num.partitions": 7}, topics={"orders": 2}, brokers=2)
def test_own(barnabas_cluster, address):
    assert address == barnabas_cluster.bootstrap_servers and len(barnabas_cluster.brokers) == 2
    with pytest.raises(Exception, match="already exists"):
        barnabas_cluster.create_topic("orders")
    barnabas_cluster.create_topic("payments")
    assert barnabas_cluster.leader("orders", 1) and barnabas_cluster.leader("payments", 6)
    barnabas_cluster.kill()

def test_a_topic_of_the_cluster(barnabas_cluster, barnabas_topic, address):
    assert address == barnabas_cluster.bootstrap_servers and len(barnabas_cluster.brokers) == 3
    assert barnabas_cluster.leader(barnabas_topic).is_running

@pytest.mark.barnabas(brokers=1)
class TestBoth:
    def test_a_topic_of_both(self, barnabas_topic, barnabas_cluster, barnabas_broker):
        assert barnabas_cluster.leader(barnabas_topic) is barnabas_cluster.brokers[0]
        with pytest.raises(Exception, match="already exists"):
            barnabas_broker.create_topic(barnabas_topic)
        with pytest.raises(Exception, match="no partition orders-0"):
            barnabas_cluster.leader("orders")
"""


def test_a_mark_counts_for_a_cluster_too(project: Project) -> None:
    outcome = project.pytest(code=CLUSTERS)

    assert outcome.outcomes == {"passed": 4}, outcome
    assert project.leftovers() == []


def test_a_parameter_s_mark_is_nearer_than_its_function_s(project: Project) -> None:
    outcome = project.pytest(
        code="""
import pytest
from pathlib import Path

@pytest.mark.barnabas(topics={"a": 1}, config={"node.id": 7})
@pytest.mark.parametrize("node_id", [7, pytest.param(8, marks=pytest.mark.barnabas(config={"node.id": 8}))])
def test_it(barnabas_broker, node_id):
    assert f"node.id={node_id}" in Path(barnabas_broker.data_dir, "meta.properties").read_text()
    with pytest.raises(Exception, match="already exists"):
        barnabas_broker.create_topic("a")
"""
    )

    assert outcome.outcomes == {"passed": 2}, outcome


@needs_xdist
def test_each_worker_of_xdist_has_a_broker(project: Project) -> None:
    code = SHARED.replace("seen.append(", "open(barnabas_broker.port.__str__(), 'w').close(); seen.append(").replace("range(3)", "range(8)")

    outcome = project.pytest("-n", "2", "--dist", "each", code=code)

    assert outcome.outcomes == {"passed": 16}, outcome
    assert len([path for path in project.directory.iterdir() if path.name.isdigit()]) == 2
    assert project.leftovers() == []


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_with_pytest_asyncio(project: Project, mode: str) -> None:
    outcome = project.pytest(
        "-o",
        f"asyncio_mode={mode}",
        code="""
import asyncio, pytest, pytest_asyncio, barnabas
from aiokafka import AIOKafkaProducer

@pytest_asyncio.fixture
async def producer(barnabas_broker):
    async with AIOKafkaProducer(bootstrap_servers=barnabas_broker.bootstrap_servers) as running:
        yield running

@pytest.mark.asyncio
async def test_asynchronous(producer, barnabas_topic):
    assert (await producer.send_and_wait(barnabas_topic, b"1")).offset == 0

@pytest.mark.asyncio
@pytest.mark.barnabas(config={"auto.create.topics.enable": False}, topics={"orders": 1})
async def test_own(producer):
    assert (await producer.send_and_wait("orders", b"1")).offset == 0

@pytest.mark.asyncio
async def test_twin():
    async with barnabas.AsyncBroker() as broker:
        await broker.restart()

def test_synchronous(barnabas_broker):
    assert barnabas_broker.is_running
""",
    )

    assert outcome.outcomes == {"passed": 4}, outcome
    assert project.leftovers() == []


def test_a_failed_test_s_report_shows_the_logs_of_its_brokers_and_of_no_other(project: Project) -> None:
    outcome = project.pytest(
        code="""
import barnabas, pytest

def noisy(number):
    return {"num.io.threads": number}  # which the broker says does nothing

@pytest.mark.barnabas(config=noisy(3))
def test_fixture(barnabas_broker):
    assert 0, "first"

def test_own():
    with barnabas.Broker(noisy(3)) as broker:
        assert 0, "second"

def test_without_broker():
    assert 0, "third"
"""
    )

    first, second, third = outcome.output.split("____ test_")[1:]
    third = third.partition("short test summary")[0]
    assert outcome.outcomes == {"failed": 3}
    assert "without effect" in first and first.count("end of its log") == 1
    assert second.count("end of its log") == 1 and "without effect" in second
    assert "end of its log" not in third


def test_a_failed_test_s_report_leaves_out_what_other_tests_and_fixtures_use(project: Project) -> None:
    """Those still run: the session's broker, a module's, another test's that its traceback holds, a marked test's until the next setup."""
    outcome = project.pytest(
        code="""
import barnabas, pytest

@pytest.fixture(scope="module")
def mine():
    with barnabas.Broker({"num.io.threads": 5}) as broker:
        yield broker

def test_of_the_session(barnabas_broker): ...

def test_module(mine): ...

def test_kept():
    test_kept.broker = barnabas.Broker().start()

@pytest.mark.barnabas
def test_own(barnabas_broker): ...

@pytest.mark.barnabas(brokers=1, config={"num.io.threads": 3})
def test_first(barnabas_cluster, barnabas_topic):
    assert 0, "first"

@pytest.mark.barnabas(config={"num.partitions": 0})
def test_second(barnabas_broker): ...

def test_third(mine):
    assert 0, "third"

def test_fourth(barnabas_topic):
    assert 0, "fourth"

def test_fifth():
    assert 0, "fifth"
"""
    )

    reports = outcome.output.partition("short test summary")[0].split("____ ")
    counts = {name: report.count("end of its log") for report in reports for name in ("first", "second", "third", "fourth", "fifth")
              if report.startswith((f"test_{name}", f"ERROR at setup of test_{name}"))}  # fmt: skip
    assert counts == {"first": 1, "second": 1, "third": 1, "fourth": 1, "fifth": 0}, outcome
    assert outcome.output.count("num.io.threads") >= 2, outcome


def test_a_broker_that_cannot_start_fails_its_test_with_its_line(project: Project) -> None:
    outcome = project.pytest(
        code="""
import pytest

@pytest.mark.barnabas(config={"num.partitions": 0})
def test_wrong(barnabas_broker): ...

def test_right(barnabas_broker): ...
"""
    )

    assert outcome.outcomes == {"passed": 1, "error": 1}, outcome
    assert "BrokerError: Invalid value 0 for configuration num.partitions" in outcome.output


def test_a_killed_session_broker_is_started_again_for_the_next_test(project: Project) -> None:
    outcome = project.pytest(
        code="""
def test_kill(barnabas_broker): barnabas_broker.kill()
def test_stop(barnabas_broker, barnabas_topic): barnabas_broker.stop()
def test_next(barnabas_topic): ...
"""
    )

    assert outcome.outcomes == {"passed": 3}, outcome


def test_settings_of_the_whole_session(project: Project) -> None:
    project.write(
        "conftest.py",
        "import pytest\n@pytest.fixture(scope='session')\ndef barnabas_config(): return {'node.id': 7}\n",
    )

    outcome = project.pytest(
        code="""
import pytest
from pathlib import Path

def node(broker): return "node.id=7" in Path(broker.data_dir, "meta.properties").read_text()

def test_shared(barnabas_broker): assert node(barnabas_broker)

@pytest.mark.barnabas(config={"num.partitions": 2})
def test_own(barnabas_broker): assert node(barnabas_broker)
"""
    )

    assert outcome.outcomes == {"passed": 2}, outcome


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "@pytest.mark.barnabas(topic='a')\ndef test_it(barnabas_broker): ...",
            "barnabas(topic='a') is not understood; it is barnabas(config=",
        ),
        ("@pytest.mark.barnabas(topic='a')\ndef test_it(barnabas_cluster): ...", "barnabas(topic='a') is not understood"),
        ("@pytest.mark.barnabas({'a': 'b'})\ndef test_it(barnabas_broker): ...", "barnabas({'a': 'b'}) is not understood"),
        ("@pytest.mark.barnabas(topics='a')\ndef test_it(barnabas_broker): ...", 'topics are {"a": 3} or ["a"], not a string'),
        ("@pytest.mark.barnabas(topics={'a': '3'})\ndef test_it(barnabas_topic): ...", "not 'a': '3'"),
        ("@pytest.mark.barnabas(config='a=b')\ndef test_it(barnabas_broker): ...", "property names and values, not 'a=b'"),
        ("@pytest.mark.barnabas(brokers='5')\ndef test_it(barnabas_cluster): ...", "brokers is a number from 1 on, not '5'"),
        (
            "@pytest.mark.barnabas(brokers=5)\ndef test_it(barnabas_broker): ...",
            "brokers=5 has no effect here: the test must name barnabas_cluster",
        ),
        ("@pytest.mark.barnabas(topics={'a': 1})\ndef test_it(): ...", "has no effect here"),
        (
            "@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.barnabas(topics={'a': 1}))])\n"
            "def test_it(barnabas_broker, n): ...",
            "has no effect here",
        ),
        (
            "import unittest\n@pytest.mark.barnabas(topics={'a': 1})\n@pytest.mark.usefixtures('barnabas_broker')\n"
            "class TestIt(unittest.TestCase):\n    def test_it(self): ...",
            "has no effect here",
        ),
    ],
    ids=[
        "keyword",
        "keyword of a cluster",
        "positional",
        "topics are a string",
        "partitions are a string",
        "config is a string",
        "brokers are a string",
        "brokers without a cluster",
        "no fixture",
        "parameter alone",
        "unittest",
    ],
)
def test_a_mark_that_cannot_work_fails_its_test_alone(project: Project, code: str, message: str) -> None:
    outcome = project.pytest(code=f"import pytest\n{code}\n\ndef test_other(): ...")

    assert outcome.outcomes == {"passed": 1, "error": 1}, outcome
    assert "ERROR at setup of" in outcome.output and "test_it" in outcome.output and message in outcome.output, outcome


def test_a_mark_on_a_whole_module_leaves_tests_without_broker_alone(project: Project) -> None:
    outcome = project.pytest(
        code="import pytest\npytestmark = pytest.mark.barnabas(topics={'a': 1})\ndef test_without(): ...\ndef test_it(barnabas_topic): ..."
    )

    assert outcome.outcomes == {"passed": 2}, outcome


def test_without_the_plugin_the_broker_is_there_all_the_same(project: Project) -> None:
    code = """
import barnabas

def test_it(pytestconfig):
    with barnabas.Broker() as broker:
        assert broker.is_running and not pytestconfig.pluginmanager.has_plugin("barnabas")
"""

    outcome = project.pytest("-p", "no:barnabas", code=code)

    assert outcome.outcomes == {"passed": 1}, outcome


def test_the_plugin_loads_nothing_until_it_is_used(project: Project) -> None:
    code = "import sys\ndef test_it():\n    assert sorted(name for name in sys.modules if name.startswith('barnabas')) == "

    outcome = project.pytest(code=code + "['barnabas', 'barnabas.pytest_plugin']")

    assert outcome.outcomes == {"passed": 1}, outcome
