"""The configuration of clients of a secured broker: for Java, for librdkafka, and an example in Python."""

from __future__ import annotations

from pathlib import Path

MECHANISM = "SCRAM-SHA-512"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def java_client(bootstrap_servers: str, authority: str, user: str, password: str) -> str:
    """A Java client's properties, which our own commands read too: complete, for one who is given this file alone. `authority` is PEM,
    "" for Java's own. `password` has neither quotes nor backslashes."""
    trust = f"ssl.truststore.type=PEM\nssl.truststore.certificates={escape(authority)}\n" if authority else ""
    return f"""\
# For Kafka's command-line tools (--command-config) and Java clients, as the user {user}. This file has a password.
bootstrap.servers={bootstrap_servers}
security.protocol=SASL_SSL
{trust}sasl.mechanism={MECHANISM}
sasl.jaas.config={login(user, password)}
"""


def librdkafka(bootstrap_servers: str, authority: Path, user: str, password: str) -> str:
    """For librdkafka: kcat -F FILE, and example.py."""
    return f"""\
# For librdkafka (kcat -F) as the user {user}. This file has a password.
bootstrap.servers={bootstrap_servers}
security.protocol=SASL_SSL
ssl.ca.location={authority}
sasl.mechanism={MECHANISM}
sasl.username={user}
sasl.password={password}
"""


def python_example(configuration: Path) -> str:
    """A producer and a consumer by confluent-kafka."""
    return f'''\
"""Sends a record to a secured Barnabas and reads it back: pip install confluent-kafka; python example.py"""

from confluent_kafka import Consumer, Producer

with open({str(configuration)!r}) as file:
    config = dict(line.rstrip("\\n").split("=", 1) for line in file if not line.startswith("#"))

producer = Producer(config)
producer.produce("example", b"hello")
producer.flush(30)

consumer = Consumer({{**config, "group.id": "example", "auto.offset.reset": "earliest"}})
consumer.subscribe(["example"])
message = consumer.poll(30)
print("nothing came" if message is None else message.error() or message.value())
consumer.close()
'''


def login(user: str, password: str) -> str:
    """The value of sasl.jaas.config."""
    return f'{SCRAM_MODULE} required username="{user}" password="{password}";'


def escape(value: str) -> str:
    """A value in a file of Java's properties."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
