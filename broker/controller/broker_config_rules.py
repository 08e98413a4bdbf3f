"""Which broker configs may be altered at run time, and which values they may get. Pure.

As in Kafka, a read-only config is refused, and an unknown name is stored, because a plug-in may know it. Of Kafka's dynamic configs, those
that this broker can apply at run time are accepted (DYNAMIC_CONFIGS), and so are those without an effect here. The others are refused,
rather than stored and ignored.

Source: DynamicBrokerConfig.validate (KIP-226), ConfigAdminManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.metadata.dynamic_configs import DYNAMIC_CONFIGS
from broker.metadata.topic_defaults import DYNAMIC_TOPIC_DEFAULTS
from config.properties import ConfigError, Property, PropertyType, UpdateMode
from config.server import DYNAMIC_ONLY_PROPERTIES, SERVER_PROPERTIES, ServerConfig
from config.topic import TOPIC_PROPERTIES, in_topic_terms
from protocol.errors import ErrorCode, KafkaError
from protocol.sasl import jaas
from protocol.sasl.exchange import SaslPropertyError

LISTENER_PREFIX = "listener.name."
JAAS_CONFIG = "sasl.jaas.config"
OAUTHBEARER_JAAS_CONFIG = f".oauthbearer.{JAAS_CONFIG}"
"""The end of a listener's, which a broker reads when it starts, as all that it knows of its OAuth provider."""

CLUSTER_LEVEL_LISTENER_CONFIGS = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""Kafka's DynamicConfig.ClusterLevelListenerConfigs: a listener's, for all brokers at once too."""

KEY_STORES = ("ssl.key.password", "ssl.keystore.", "ssl.truststore.")
"""Kafka's DynamicSecurityConfigs, which are a listener's."""

THREAD_COUNTS = ("num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads")
"""Kafka's DynamicThreadPool and SocketServer, whether they have an effect here or not."""

CLASS_LISTS = {"metric.reporters": "kafka.server.DynamicMetricsReporters"}
"""Lists of Java classes, and who in Kafka looks at them. Here are those that are the default."""

DEDUPE_BUFFER_BYTES_MIN = 1024 * 1024


def find_property(name: str) -> Property | None:
    """Returns a property of the broker's file, or one that can only be set dynamically."""
    return SERVER_PROPERTIES.get(name) or DYNAMIC_ONLY_PROPERTIES.get(name)


def is_stored(name: str) -> bool:
    """Whether a deletion of the config is recorded even if it was not set, so that brokers read it again, as in Kafka."""
    return name in DYNAMIC_CONFIGS


def check_alterable(values: Mapping[str, str], *, is_default: bool) -> None:
    """Raises KafkaError INVALID_REQUEST unless all configs in `values` may be altered. Deleting a config is always allowed, as in Kafka.
    `is_default` is for the default of all brokers."""
    names = list(values)
    _refuse("Cannot update these configs dynamically", [name for name in names if _is_read_only(name)])
    why = "These security configs can be dynamically updated only per-listener using the listener prefix"
    _refuse(why, [name for name in names if name.startswith(KEY_STORES)])
    for name, text in values.items():
        _check_class(name, text)
        _check_login_module(name, text)
    if is_default:
        why = "Cannot update these configs at default cluster level, broker id must be specified"
        _refuse(why, [name for name in names if _is_per_broker(name)])
    _refuse("This broker does not change these configs while it runs", [name for name in names if not _is_served(name)])


def check_value(name: str, text: str, config: ServerConfig) -> None:
    """Raises KafkaError INVALID_REQUEST if a broker may not have this value. The config itself may be altered."""
    known = find_property(_base_name(name) if _base_name(name) in CLUSTER_LEVEL_LISTENER_CONFIGS else name)
    if known is None:
        return
    if name in CLASS_LISTS and not {part.strip() for part in text.split(",")} <= {"", *(known.default_text or "").split(",")}:
        why = f"Validation of dynamic config update of Set({name}) failed with class class {CLASS_LISTS[name]}"
        raise _invalid_dynamically(why)
    try:
        value = known.parse(text)
        if name in DYNAMIC_TOPIC_DEFAULTS:
            TOPIC_PROPERTIES[DYNAMIC_TOPIC_DEFAULTS[name]].parse(in_topic_terms(name, text))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    dedupe_buffer_bytes_min = DEDUPE_BUFFER_BYTES_MIN * max(config.log_cleaner_threads, 1)
    if name == "log.cleaner.dedupe.buffer.size" and isinstance(value, int) and value < dedupe_buffer_bytes_min:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"requirement failed: {name} must be at least 1MB per cleaner thread.")
    if name == "max.connections.per.ip" and value == 0 and not config.max_connections_per_ip_overrides:
        why = f"requirement failed: {name} can be set to zero only if {name}.overrides property is set."
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    if name == "max.connection.creation.rate" and value == 0:
        # A broker may start with this value, but SocketServer.validateReconfiguration refuses it at run time.
        raise _invalid_dynamically(f"Invalid {name} {value}")


def check_thread_count(name: str, count: int, present_count: int) -> None:
    """Raises KafkaError INVALID_REQUEST unless a pool of `present_count` threads may be resized to `count`."""
    if present_count // 2 <= count <= present_count * 2:
        return
    bound = "be at least half" if count < present_count else "not be greater than double"
    why = f"value should {bound} the current value {present_count}"
    raise _invalid_dynamically(f"Dynamic thread count update validation failed for {name}={count}, {why}")


def _invalid_dynamically(why: str) -> KafkaError:
    error = f"org.apache.kafka.common.config.ConfigException: {why}"
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid value {error} for configuration Invalid dynamic configuration")


def _check_class(name: str, text: str) -> None:
    """Only Kafka's default classes are accepted. Another Java class would be stored without an effect, and Kafka would not start with
    it. A listener's config has a prefix."""
    known = find_property(_base_name(name))
    if known is not None and known.type is PropertyType.CLASS and text.strip() != known.default_text:
        why = f"Invalid value {text} for configuration {known.name}: Class {text} could not be found."
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _refuse(why: str, names: Sequence[str]) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(names)}]")


def _base_name(name: str) -> str:
    """The config's name without a listener's prefix."""
    return name.split(".", 3)[-1] if name.startswith(LISTENER_PREFIX) else name


def _check_login_module(name: str, text: str) -> None:
    """No login module is stored but those that are here, whoever it is for: Kafka, which may serve the log later, would load it
    (CVE-2023-25194). The error repeats nothing of the text but a class name."""
    if name == JAAS_CONFIG or name.endswith(f".{JAAS_CONFIG}"):
        try:
            jaas.parse(text, name)
        except SaslPropertyError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _is_read_only(name: str) -> bool:
    known = SERVER_PROPERTIES.get(name)
    return known is not None and known.is_read_only


def _is_per_broker(name: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        return _base_name(name) not in CLUSTER_LEVEL_LISTENER_CONFIGS
    known = SERVER_PROPERTIES.get(name)
    return known is not None and known.update_mode is UpdateMode.PER_BROKER


def _is_served(name: str) -> bool:
    if name.endswith(OAUTHBEARER_JAAS_CONFIG):
        return False
    if name in DYNAMIC_CONFIGS or find_property(name) is None:
        return True
    from config.docs import has_effect  # late: only this rare request needs the texts

    return not has_effect(name)
