"""kafka-python's own integration tests, unmodified. With BARNABAS_TEST_PROTOCOL=SASL_SSL all of them run over TLS and SCRAM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.kafka_python_suite import SETTINGS, run_suite, scram_words, secured_environment, secured_settings
from tests.support.broker import BrokerProcess
from tests.support.cluster import CLUSTER_ID
from tests.support.fixtures import protocols_of_run
from tests.support.secured import Secured

PASSED_MIN = {"test_admin_integration.py": 22, "test_consumer_integration.py": 16, "test_producer_integration.py": 17}
SECURED_MIN = {"test_sasl_integration.py": 9, "test_ssl_integration.py": 2}
"""Files whose tests ask for SASL_PLAINTEXT with a mechanism, and for SSL."""
if "PLAINTEXT" not in protocols_of_run():
    PASSED_MIN, SECURED_MIN = {}, PASSED_MIN | SECURED_MIN


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, SETTINGS)
    process.settings["advertised.listeners"] = f"PLAINTEXT://{process.bootstrap}"
    process.start()
    yield process
    process.stop()


@pytest.mark.parametrize("file_name", PASSED_MIN)
def test_kafka_pythons_own_tests_pass(broker: BrokerProcess, file_name: str) -> None:
    passed_count, output = run_suite(broker, file_name, [])

    assert passed_count >= PASSED_MIN[file_name], output


@pytest.fixture(scope="module")
def secured() -> Secured:
    return Secured()


@pytest.fixture(scope="module")
def secured_broker(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("secured") / "broker", secured_settings(secured))
    process.port = secured.ports["PLAINTEXT"]
    process.format(CLUSTER_ID, *scram_words())
    process.start()
    yield process
    process.stop()


@pytest.mark.parametrize("file_name", SECURED_MIN)
def test_kafka_pythons_own_tests_pass_over_tls_and_sasl(
    secured_broker: BrokerProcess, secured: Secured, file_name: str, tmp_path: Path
) -> None:
    passed_count, output = run_suite(secured_broker, file_name, [], secured_environment(secured, tmp_path))

    assert passed_count >= SECURED_MIN[file_name], output
