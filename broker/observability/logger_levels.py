"""The levels of this process's loggers, as people who know Kafka read and set them: by kafka-configs, broker-loggers (KIP-412).

Each of our loggers has its own name, and those of the Kafka classes that do the same work. A level lasts as long as the process.
Imported when first asked for.

Source: RuntimeLoggerManager, LoggingController.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from protocol.errors import ErrorCode, KafkaError

ROOT = "root"
OURS = "barnabas."
TRACE = 5

KAFKA_LOGGERS = {
    "kafka.authorizer.logger": "barnabas.authorizer",
    "kafka.cluster.Partition": "barnabas.replication",
    "kafka.controller": "barnabas.controller",
    "kafka.log": "barnabas.storage",
    "kafka.log.LogCleaner": "barnabas.cleaner",
    "kafka.network": "barnabas.network",
    "kafka.request.logger": "barnabas.dispatch",
    "kafka.server": "barnabas.server",
    "kafka.server.KafkaApis": "barnabas.handlers",
    "kafka.server.ReplicaManager": "barnabas.replication",
    "org.apache.kafka.controller": "barnabas.controller",
    "org.apache.kafka.coordinator.group": "barnabas.groups",
    "org.apache.kafka.image": "barnabas.metadata",
    "org.apache.kafka.raft": "barnabas.quorum",
    "org.apache.kafka.server": "barnabas.server",
    "org.apache.kafka.storage": "barnabas.storage",
    "state.change.logger": "barnabas.replication",
}
"""Which of our loggers tells what a logger of Kafka's does."""

LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Python's levels by Kafka's names."""


def levels() -> Iterator[tuple[str, str]]:
    """Every logger's name and level, that of its nearest ancestor where it has none of its own."""
    ours = {name for name in logging.root.manager.loggerDict if name.startswith(OURS)}
    for name in [ROOT, *sorted(ours | KAFKA_LOGGERS.keys())]:
        yield name, _name_of(_find(name).getEffectiveLevel())


def check_level(name: str, level: str) -> None:
    """Raises KafkaError INVALID_CONFIG unless the logger is there and the level is one of Kafka's."""
    _check_exists(name)
    if level not in LEVELS:
        valid = ", ".join(sorted(LEVELS))
        why = f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are {valid}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, why)


def check_removal(name: str) -> None:
    """Raises KafkaError INVALID_CONFIG unless the logger is there, INVALID_REQUEST for the root."""
    _check_exists(name)
    if name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")


def set_level(name: str, level: str) -> None:
    """Both have been checked."""
    _find(name).setLevel(LEVELS[level])


def remove_level(name: str) -> None:
    """The logger, which was checked, has its nearest ancestor's level from now on."""
    _find(name).setLevel(logging.NOTSET)


def _check_exists(name: str) -> None:
    if name != ROOT and name not in KAFKA_LOGGERS and not (name.startswith(OURS) and name in logging.root.manager.loggerDict):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def _find(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(KAFKA_LOGGERS.get(name, name))


def _name_of(level: int) -> str:
    """The least of Kafka's levels that lets through no more."""
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")
