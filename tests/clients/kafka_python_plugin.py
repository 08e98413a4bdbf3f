"""A pytest plugin for kafka-python's own integration tests (kafka_python_suite.py): their brokers are one that runs, with TLS and logins.

The suite itself reaches a broker that runs by PLAINTEXT alone. Here it reaches one by the protocol that a test asks for, or by SASL_SSL
with SCRAM-SHA-512. BARNABAS_SECURED has what is known of the broker, as JSON.
"""

from __future__ import annotations

import json
import os
from typing import Any

from kafka import KafkaAdminClient
from test.integration import fixtures

DEFAULT_PROTOCOL, DEFAULT_MECHANISM = "SASL_SSL", "SCRAM-SHA-512"


class RunningBroker(fixtures.KafkaFixture):  # type: ignore[misc]
    """In place of one that the suite starts."""

    def __init__(self, transport: str = DEFAULT_PROTOCOL, sasl_mechanism: str | None = None, **_: Any) -> None:
        known = json.loads(os.environ["BARNABAS_SECURED"])
        if "SASL" in transport:
            sasl_mechanism = sasl_mechanism or DEFAULT_MECHANISM
        host, port = known["addresses"][transport].split(":")
        super().__init__(host, int(port), 0, external=True, partitions=4, transport=transport, sasl_mechanism=sasl_mechanism)
        self.broker_user, self.broker_password, self.ssl_dir = known["user"], known["password"], known["directory"]
        self.child.dump_logs = lambda: None

    @classmethod
    def instance(cls, broker_id: int, **parameters: Any) -> RunningBroker:
        return cls(**parameters)

    def start(self) -> None:
        """It runs."""

    def get_topic_names(self) -> list[str]:
        """The suite's own asks Kafka's command."""
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            names: list[str] = admin.list_topics()
        return names


fixtures.KafkaFixture.instance = RunningBroker.instance
