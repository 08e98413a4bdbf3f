"""What the image makes of variables that name no property: secrets in files, login modules of the JVM, a mounted file."""

from __future__ import annotations

from pathlib import Path

import pytest

import config.image
from config.image import image_properties
from config.loading import DEFAULTS_VARIABLE, MOUNTED_VARIABLE, load_server_config, properties_from_environment
from config.properties import ConfigError

JAAS = """\
// of the image's example
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="a;}b" // not the end
    user_alice="a//b";
    org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="s";
};
/* a listener's own */
inner.KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="b"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="z"; };
"""
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required\n    username="admin" password="a;}b"  \n    user_alice="a//b";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="s";'
INNER = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="b";'


def test_secrets_are_files_of_the_secrets_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config.image, "SECRETS_DIRECTORY", tmp_path)
    (tmp_path / "store_creds").write_text("one two\n")
    (tmp_path / "key_creds").write_text("three")
    environ = {
        "KAFKA_SSL_KEYSTORE_FILENAME": "kafka01.keystore.jks",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store_creds",
        "KAFKA_SSL_KEY_CREDENTIALS": "key_creds",
        "KAFKA_SSL_TRUSTSTORE_LOCATION": "/elsewhere/trust.jks",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "kafka.truststore.jks",
    }

    assert image_properties(properties_from_environment(environ), environ) == {
        "ssl.keystore.location": f"{tmp_path}/kafka01.keystore.jks",
        "ssl.keystore.password": "one two",
        "ssl.key.password": "three",
        "ssl.truststore.location": "/elsewhere/trust.jks",
    }


def test_secret_that_is_not_there_is_refused_with_its_variable() -> None:
    with pytest.raises(ConfigError, match=r"^KAFKA_SSL_KEY_CREDENTIALS names .*/none, which cannot be read: No such file or directory$"):
        image_properties({"ssl.key.credentials": "none"}, {})


def test_login_modules_of_the_jvm_become_those_of_listeners(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(JAAS)
    environ = {"KAFKA_OPTS": f"-Xmx1G -Djava.security.auth.login.config={tmp_path}/jaas.conf -Dother=1"}
    own = "listener.name.third.plain.sasl.jaas.config"
    properties = {
        "listeners": "SASL_PLAINTEXT://:1,INNER://:2,THIRD://:4, PLAINTEXT://:3",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT, INNER:SASL_SSL,THIRD:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.third.sasl.enabled.mechanisms": "PLAIN",
        own: "its own",
    }

    assert image_properties(properties, environ) == properties | {
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM,
        "listener.name.inner.plain.sasl.jaas.config": INNER,
    }


def test_mounted_file_stands_in_for_what_the_image_sets_and_variables_win(tmp_path: Path) -> None:
    defaults, mounted = tmp_path / "container.properties", tmp_path / "server.properties"
    defaults.write_text("listeners=PLAINTEXT://:9092,INTERNAL://:19092\nnum.partitions=7\n")
    environ = {
        DEFAULTS_VARIABLE: str(defaults),
        MOUNTED_VARIABLE: str(mounted),
        "KAFKA_NODE_ID": "5",
        "KAFKA_PROCESS_ROLES": "broker,controller",
    }
    environ["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"
    assert load_server_config(None, environ, []).num_partitions == 7
    mounted.write_text("listeners=PLAINTEXT://localhost:9095\nnode.id=1\n")

    config = load_server_config(None, environ, [])

    assert ([str(each) for each in config.listeners], config.node_id, config.num_partitions) == (["PLAINTEXT://localhost:9095"], 5, 1)
    assert config.barnabas_auto_format
    given = tmp_path / "given.properties"
    given.write_text("num.partitions=3\n")
    assert load_server_config(given, environ, []).num_partitions == 3
