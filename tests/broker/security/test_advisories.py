"""Each advisory about Kafka or its like that says something to this broker, and each thread of a tracker about TLS, SASL and quotas, has a
test that names it."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.security.sasl.plain_server import PlainServer
from protocol.sasl.scram import ScramMechanism, credential_of, is_proof

TESTS = Path(__file__).parents[2]
NAMED = [
    "CVE-2026-111115",
    "CVE-2026-111108",
    "CVE-2026-111073",
    "CVE-2026-83525",
    "CVE-2026-110985",
    "CVE-2026-33557",
    "CVE-2026-41115",
    "CVE-2025-27817",
    "CVE-2025-27818",
    "CVE-2025-27819",
    "CVE-2023-25194",
    "CVE-2024-56128",
    "CVE-2024-27309",
    "CVE-2023-34455",
    "CVE-2022-34917",
    "CVE-2021-38153",
    "CVE-2018-17196",
    "CVE-2018-1288",
    "CVE-2017-12610",
    "CVE-2023-50976",
    "CVE-2026-82266",
    "CVE-2023-24619",
    "CVE-2021-22160",
    "CVE-2023-31007",
    "CVE-2026-27571",
    "CVE-2023-46604",
    "CVE-2026-50734",
    "CVE-2026-53917",
    "CVE-2026-67235",
    "CVE-2026-10142",
    "CVE-2026-10143",
    "KAFKA-9241",
    "KAFKA-9677",
    "KAFKA-13418",
    "KAFKA-20025",
    "KAFKA-20667",
    "librdkafka#4293",
    "redpanda#31152",
    "sarama#2233",
]
"""Of Kafka, Redpanda, Pulsar, NATS, ActiveMQ, RabbitMQ, kafka-python; Kafka's, librdkafka's, Redpanda's and sarama's trackers."""
NAMED_HERE = "CVE-2021-38153"


def test_each_has_a_test_that_names_it() -> None:
    texts = [path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    named = set(re.findall(r"CVE-\d+-\d+|KAFKA-\d+|\w+#\d+", "\n".join(texts)))

    assert sorted(set(NAMED) - named - {NAMED_HERE}) == []


@pytest.mark.parametrize("is_right", [True, False])
def test_secrets_are_compared_in_a_time_that_does_not_depend_on_them(is_right: bool) -> None:
    """CVE-2021-38153: Arrays.equals told by its time how much of a password or a key was right."""
    credential = credential_of(ScramMechanism.SCRAM_SHA_256, b"salted", b"salt", 4096)
    with patch("hmac.compare_digest", return_value=is_right) as compare:
        assert is_proof(ScramMechanism.SCRAM_SHA_256, credential, b"message", bytes(32)) is is_right
        server = PlainServer({"alice": "secret"})
        try:
            server.evaluate(b"\0alice\0guessed")
        except Exception:
            pass

    assert (server.identity is not None) is is_right
    assert compare.call_count == 2
