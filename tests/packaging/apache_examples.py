"""The variables that the compose files of Apache Kafka's image set, by file, for one service of each.

Source: docker/examples/docker-compose-files/**/docker-compose.yml and docker/examples/fixtures in Apache Kafka's repository.
"""

from __future__ import annotations

from collections.abc import Mapping

SINGLE = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
}
BOTH = {**SINGLE, "KAFKA_NODE_ID": "1", "KAFKA_PROCESS_ROLES": "broker,controller"}
SSL = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "kafka01.keystore.jks",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "kafka_keystore_creds",
    "KAFKA_SSL_KEY_CREDENTIALS": "kafka_ssl_key_creds",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "kafka.truststore.jks",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "kafka_truststore_creds",
    "KAFKA_SSL_CLIENT_AUTH": "required",
    "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "SSL:SSL,CONTROLLER:PLAINTEXT,SSL-INTERNAL:SSL",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "SSL-INTERNAL",
}
PLAINTEXT = {
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
}
SASL = {
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": ("CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_PLAINTEXT_HOST:SASL_PLAINTEXT"),
    "KAFKA_INTER_BROKER_LISTENER_NAME": "SASL_PLAINTEXT",
    "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
    "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
    "KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/kafka/secrets/broker_jaas.conf",
}
THREE = "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093"
THREE_CONTROLLERS = "1@controller-1:9093,2@controller-2:9093,3@controller-3:9093"

EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "single-node/plaintext": BOTH
    | PLAINTEXT
    | {
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
    },
    "single-node/ssl": BOTH
    | SSL
    | {
        "KAFKA_ADVERTISED_LISTENERS": "SSL://localhost:9093,SSL-INTERNAL://broker:19093",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_LISTENERS": "SSL://:9093,CONTROLLER://:29093,SSL-INTERNAL://:19093",
    },
    "single-node/sasl_plaintext": BOTH
    | SASL
    | {
        "KAFKA_ADVERTISED_LISTENERS": "SASL_PLAINTEXT_HOST://localhost:9094,SASL_PLAINTEXT://broker:19094",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_LISTENERS": "CONTROLLER://:29093,SASL_PLAINTEXT_HOST://:9094,SASL_PLAINTEXT://:19094",
    },
    "cluster/combined/plaintext": BOTH
    | PLAINTEXT
    | {
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka-1:19092,PLAINTEXT_HOST://localhost:29092",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": THREE,
        "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093,PLAINTEXT_HOST://:9092",
    },
    "cluster/combined/ssl": BOTH
    | SSL
    | {
        "KAFKA_SECURITY_PROTOCOL": "SSL",
        "KAFKA_ADVERTISED_LISTENERS": "SSL-INTERNAL://kafka-1:19093,SSL://localhost:29093",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": THREE.replace("9093", "29092"),
        "KAFKA_LISTENERS": "SSL-INTERNAL://:19093,CONTROLLER://kafka-1:29092,SSL://:9093",
    },
    "cluster/combined/sasl_plaintext": BOTH
    | SASL
    | {
        "KAFKA_ADVERTISED_LISTENERS": "SASL_PLAINTEXT://kafka-1:19094,SASL_PLAINTEXT_HOST://localhost:29094",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": THREE,
        "KAFKA_LISTENERS": "SASL_PLAINTEXT://:19094,CONTROLLER://:9093,SASL_PLAINTEXT_HOST://:9094",
    },
    "cluster/isolated/plaintext, controller": SINGLE
    | {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": THREE_CONTROLLERS,
        "KAFKA_LISTENERS": "CONTROLLER://:9093",
    },
    "cluster/isolated/plaintext, broker": SINGLE
    | PLAINTEXT
    | {
        "KAFKA_NODE_ID": "4",
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": THREE_CONTROLLERS,
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka-1:19092,PLAINTEXT_HOST://localhost:29092",
        "KAFKA_LISTENERS": "PLAINTEXT://:19092,PLAINTEXT_HOST://:9092",
    },
    "cluster/isolated/ssl, broker": SINGLE
    | SSL
    | {
        "KAFKA_NODE_ID": "4",
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_SECURITY_PROTOCOL": "SSL",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": THREE_CONTROLLERS.replace("9093", "29092"),
        "KAFKA_ADVERTISED_LISTENERS": "SSL-INTERNAL://kafka-1:19093,SSL://localhost:29093",
        "KAFKA_LISTENERS": "SSL-INTERNAL://:19093,SSL://:9093",
    },
    "single-node/file-input": {
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_NODE_ID": "1",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_LISTENERS": "PLAINTEXT_HOST://:9092,SSL://:9093,CONTROLLER://:29093,PLAINTEXT://:19092",
        "KAFKA_PROCESS_ROLES": "broker,controller",
    },
}
MOUNTED_PROPERTIES = """\
advertised.listeners=PLAINTEXT_HOST://localhost:9092,SSL://localhost:9093,PLAINTEXT://broker:19092
controller.listener.names=CONTROLLER
group.initial.rebalance.delay.ms=0
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
log.dirs=/tmp/kraft-combined-logs
offsets.topic.replication.factor=1
process.roles=broker
ssl.client.auth=required
ssl.key.password=abcdefgh
ssl.keystore.location=/etc/kafka/secrets/kafka01.keystore.jks
ssl.keystore.password=abcdefgh
ssl.truststore.location=/etc/kafka/secrets/kafka.truststore.jks
ssl.truststore.password=abcdefgh
transaction.state.log.min.isr=1
transaction.state.log.replication.factor=1
"""
JAAS = """\
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin"
    password="admin-secret"
    user_admin="admin-secret"
    user_alice="alice-secret";
};
"""

# What public projects set with apache/kafka and apache/kafka-native, in their compose files and their instructions; sources are many.
MINIMAL = {"KAFKA_NODE_ID": "1", "KAFKA_PROCESS_ROLES": "broker,controller", "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER"}
ALONE = {
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}
TWO_NAMES = {"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
PUBLIC: Mapping[str, Mapping[str, str]] = {
    "no variables": {},
    "a workflow engine": MINIMAL
    | TWO_NAMES
    | {
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
        "CLUSTER_ID": "atlas-local-cluster-001",
    },
    "a variable of another image beside": MINIMAL
    | TWO_NAMES
    | ALONE
    | {
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://192.168.1.6:9092",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_KRAFT_CLUSTER_ID": "force_rebuild_001",
    },
    "a course on streams": MINIMAL
    | TWO_NAMES
    | {
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    },
    "microservices": MINIMAL
    | TWO_NAMES
    | ALONE
    | {
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_NUM_PARTITIONS": "3",
    },
    "beside Debezium": MINIMAL
    | PLAINTEXT
    | {
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
        "KAFKA_LISTENERS": "PLAINTEXT://kafka:29092,CONTROLLER://kafka:9093,PLAINTEXT_HOST://0.0.0.0:9092",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:29092,PLAINTEXT_HOST://localhost:9092",
        "CLUSTER_ID": "debezium-demo-cluster-id",
    },
    "two client listeners": MINIMAL
    | {
        "KAFKA_LISTENERS": "CONTROLLER://localhost:9091,HOST://0.0.0.0:9092,DOCKER://0.0.0.0:9093",
        "KAFKA_ADVERTISED_LISTENERS": "HOST://kafka:9092,DOCKER://kafka:9093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,DOCKER:PLAINTEXT,HOST:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9091",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "DOCKER",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    },
    "a wallet": MINIMAL
    | {
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093,EXTERNAL://0.0.0.0:9094",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,EXTERNAL://localhost:19092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    },
    "a framework's guide": MINIMAL
    | TWO_NAMES
    | ALONE
    | {
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_NUM_PARTITIONS": "3",
    },
    "a course on delivery": MINIMAL
    | TWO_NAMES
    | {
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
    },
}
