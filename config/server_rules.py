"""From texts to a `ServerConfig`: parses each property, then applies the rules between properties (Kafka's KafkaConfig.validateValues)
and refuses what this broker does not do, so that no setting a person relies on is silently dropped.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from config.cordoned import CORDONED_LOG_DIRS, find_fault
from config.endpoints import (
    SECURITY_PROTOCOLS,
    Endpoint,
    Voter,
    parse_connection_overrides,
    parse_endpoints,
    parse_host_and_port,
    parse_protocol_map,
    parse_voters,
)
from config.properties import ConfigError, Value
from config.server import (
    AUTHORIZER_PROPERTIES,
    LEADER_SELECTOR,
    RACK_AWARE_SELECTOR,
    SERVER_PROPERTIES,
    STANDARD_AUTHORIZER,
    ServerConfig,
)
from config.topic import TOPIC_PROPERTIES, topic_defaults

DEFAULT_NODE_ID = 1

# Listener-specific and plug-in settings, which Kafka accepts under a prefix.
_KNOWN_PREFIXES = ("listener.name.", "rlmm.config.", "rsm.config.")

# Set to anything but its default, each of these would change who may do what or where data goes; none of it is here yet.
NOT_SUPPORTED = {
    "create.topic.policy.class.name": "policies written in Java cannot be loaded",
    "alter.config.policy.class.name": "policies written in Java cannot be loaded",
    "client.quota.callback.class": "callbacks written in Java cannot be loaded",
    "config.providers": "config providers are not supported",
    "remote.log.storage.system.enable": "tiered storage is not supported",
}


class _Values(dict[str, Any]):
    """The properties that are set, parsed; asked for another one, Kafka's default."""

    def __missing__(self, name: str) -> Value:
        return SERVER_PROPERTIES[name].default


def server_config(texts: Mapping[str, str]) -> ServerConfig:
    """The settings described by `texts` (property name → text). Raises ConfigError for the first wrong one."""
    known_texts = {key: text for key, text in texts.items() if key in SERVER_PROPERTIES}
    unknown_keys = tuple(
        key for key in texts if key not in SERVER_PROPERTIES and key not in AUTHORIZER_PROPERTIES and not key.startswith(_KNOWN_PREFIXES)
    )
    values = _Values((name, SERVER_PROPERTIES[name].parse(text)) for name, text in known_texts.items())
    _refuse_unsupported(values)
    settings = {SERVER_PROPERTIES[name].attribute: value for name, value in values.items()}
    settings |= _node_fields(values) | _listener_fields(values, known_texts)
    settings |= {field: texts[name] for name, field in AUTHORIZER_PROPERTIES.items() if name in texts}
    config = ServerConfig(
        **{name: value for name, value in settings.items() if name in ServerConfig.__annotations__},
        topic_defaults=topic_defaults(values),
        texts=dict(texts),
        unknown_keys=unknown_keys,
    )
    _check_listeners(config)
    _check_early_start(config)
    _check_cordoned(config)
    _check_quorum(config)
    _check_numbers(config)
    _check_internal_topics(values)
    _check_group_limits(values)
    _ = config.metrics_address  # raises for what is not host:port
    return config


def _refuse_unsupported(values: Mapping[str, Value]) -> None:
    for name in NOT_SUPPORTED.keys() & values.keys():
        if values[name] != SERVER_PROPERTIES[name].default:
            raise ConfigError(name, SERVER_PROPERTIES[name].format(values[name]), NOT_SUPPORTED[name])
    authorizer = values["authorizer.class.name"]
    if authorizer not in ("", STANDARD_AUTHORIZER):
        raise ConfigError(
            "authorizer.class.name", authorizer, f"must be {STANDARD_AUTHORIZER}: other authorizers, written in Java, cannot be loaded"
        )
    selector = values["replica.selector.class"]
    if selector not in (None, "", LEADER_SELECTOR, RACK_AWARE_SELECTOR):
        reason = f"must be {RACK_AWARE_SELECTOR} or {LEADER_SELECTOR}: other selectors, written in Java, cannot be loaded"
        raise ConfigError("replica.selector.class", selector, reason)


def _node_fields(values: Mapping[str, Value]) -> dict[str, Any]:
    node_id, broker_id = values["node.id"], values["broker.id"]
    if broker_id == -1:
        broker_id = None
    if node_id is not None and broker_id is not None and node_id != broker_id:
        raise ConfigError("broker.id", broker_id, f"must be the same as node.id ({node_id})")
    log_dirs = values["log.dirs"] or values["log.dir"]
    assert isinstance(log_dirs, tuple)
    return {
        "node_id": next(value for value in (node_id, broker_id, DEFAULT_NODE_ID) if value is not None),
        "process_roles": values["process.roles"] or ("broker", "controller"),
        "log_dirs": log_dirs,
        "metadata_log_dir": values["metadata.log.dir"] or log_dirs[0],
    }


def _listener_fields(values: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    controller_names = tuple(name.upper() for name in values["controller.listener.names"] or ())
    protocols = parse_protocol_map("listener.security.protocol.map", values["listener.security.protocol.map"])
    if "listener.security.protocol.map" not in texts:
        # As Kafka under KRaft: a controller listener that is not mapped is plaintext.
        protocols |= {name: "PLAINTEXT" for name in controller_names if name not in SECURITY_PROTOCOLS}
    listeners = parse_endpoints("listeners", values["listeners"], protocols, with_distinct_ports=True)
    advertised = _advertised_listeners(values["advertised.listeners"], listeners, protocols)
    inter_broker_name = values["inter.broker.listener.name"]
    if inter_broker_name is not None and "security.inter.broker.protocol" in texts:
        raise ConfigError("inter.broker.listener.name", inter_broker_name, "cannot be set together with security.inter.broker.protocol")
    if inter_broker_name is None:
        inter_broker_name = values["security.inter.broker.protocol"]
    return {
        "listeners": listeners,
        "advertised_listeners": advertised,
        "listener_security_protocol_map": protocols,
        "controller_listener_names": controller_names,
        "inter_broker_listener_name": inter_broker_name.upper(),
        "controller_quorum_voters": parse_voters("controller.quorum.voters", values["controller.quorum.voters"]),
        "max_connections_per_ip_overrides": parse_connection_overrides(
            "max.connections.per.ip.overrides", values["max.connections.per.ip.overrides"]
        ),
    }


def _advertised_listeners(
    texts: tuple[str, ...] | None, listeners: tuple[Endpoint, ...], protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    """advertised.listeners, else the listeners; a listener on every address is advertised by this machine's canonical name."""
    key = "advertised.listeners"
    endpoints = listeners if texts is None else parse_endpoints(key, texts, protocols, with_distinct_ports=False)
    return tuple(
        endpoint if endpoint.host else Endpoint(endpoint.listener_name, socket.getfqdn(), endpoint.port, endpoint.security_protocol)
        for endpoint in endpoints
    )


def _check_listeners(config: ServerConfig) -> None:
    names = [endpoint.listener_name for endpoint in config.listeners]
    for endpoint in config.advertised_listeners:
        if endpoint.host == "0.0.0.0":
            whose = "" if "advertised.listeners" in config.texts else " (it is not set, so that listeners counts)"
            why = f"cannot use the nonroutable address 0.0.0.0; use a routable address{whose}"
            raise ConfigError("advertised.listeners", endpoint, why)
        if endpoint.listener_name not in names:
            raise ConfigError("advertised.listeners", endpoint, f"must name a listener defined in listeners ({', '.join(names)})")
    is_controller = "controller" in config.process_roles
    for name in config.controller_listener_names:
        if not is_controller and name in names:
            raise ConfigError("listeners", name, "is a controller listener, and this node is no controller")
        if is_controller and name not in names:
            raise ConfigError("controller.listener.names", name, f"must name a listener defined in listeners ({', '.join(names)})")
    if "broker" not in config.process_roles:
        if config.client_listeners:
            name = config.client_listeners[0].listener_name
            raise ConfigError("listeners", name, "is no controller listener, and this node is no broker")
        return
    advertised_names = [endpoint.listener_name for endpoint in config.client_advertised_listeners]
    if not advertised_names:
        raise ConfigError("advertised.listeners", ",".join(names), "there must be at least one listener that is not the controller's")
    if config.inter_broker_listener_name not in advertised_names:
        why = f"must name a listener defined in advertised.listeners ({', '.join(advertised_names)})"
        raise ConfigError("inter.broker.listener.name", config.inter_broker_listener_name, why)


def _check_early_start(config: ServerConfig) -> None:
    names = {*(endpoint.listener_name for endpoint in config.listeners), *config.controller_listener_names}
    unknown = [name for name in config.early_listener_names if name not in names]
    if unknown:
        raise ConfigError("early.start.listeners", unknown[0], "must name a listener of listeners or controller.listener.names")


def _check_cordoned(config: ServerConfig) -> None:
    """Kafka looks at it on brokers alone."""
    why = find_fault(config.cordoned_log_dirs, config.log_dirs) if "broker" in config.process_roles else None
    if why is not None:
        raise ConfigError(CORDONED_LOG_DIRS, ",".join(config.cordoned_log_dirs), why)


def _check_quorum(config: ServerConfig) -> None:
    """Kafka's rules between a node's roles, its controller listener and the voters (KafkaConfig.validateValues)."""
    key, voters = "controller.quorum.voters", config.controller_quorum_voters
    voter_texts = ",".join(_voter_text(voter) for voter in voters)
    is_voter = any(voter.node_id == config.node_id for voter in voters)
    if "controller" not in config.process_roles:
        if not config.controller_listener_names:
            raise ConfigError("controller.listener.names", "", "must name the controllers' listener on a node that is no controller")
        if is_voter:
            raise ConfigError(key, voter_texts, f"must not contain this node ({config.node_id}), which is no controller")
        if not voters and not config.controller_quorum_bootstrap_servers:
            raise ConfigError(key, "", "or controller.quorum.bootstrap.servers must be set on a node that is no controller")
    elif voters and not is_voter:
        raise ConfigError(key, voter_texts, f"must contain this node ({config.node_id}), which is a controller")
    for server in config.controller_quorum_bootstrap_servers:
        parse_host_and_port("controller.quorum.bootstrap.servers", server)
    if config.controller_listener_names:
        return
    if len(voters) > 1:
        raise ConfigError(key, voter_texts, "others reach this node by a controller listener only; set controller.listener.names")
    if "broker" not in config.process_roles or config.controller_quorum_bootstrap_servers:
        raise ConfigError("controller.listener.names", "", "must name the listener of this controller")


def _voter_text(voter: Voter) -> str:
    return f"{voter.node_id}@{voter.host}:{voter.port}"


def _check_internal_topics(values: Mapping[str, Value]) -> None:
    """Kafka starts with values that segment.bytes does not allow, and is then refused its own topic, for ever: groups never begin."""
    for name in ("offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"):
        violation = TOPIC_PROPERTIES["segment.bytes"].find_violation(values[name])
        if violation is not None:
            raise ConfigError(name, values[name], violation.why)


def _check_numbers(config: ServerConfig) -> None:
    """Kafka's rules between numbers, in the order of KafkaConfig.validateValues."""
    if config.topic_defaults.retention_ms == 0:
        raise ConfigError("log.retention.ms", 0, "must be unlimited (-1) or at least 1")
    if config.log_cleaner_threads and config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads <= 1024 * 1024:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size", config.log_cleaner_dedupe_buffer_size, "must be more than 1048576 for each cleaner thread"
        )
    if config.replica_fetch_wait_max_ms > min(config.replica_socket_timeout_ms, config.replica_lag_time_max_ms):
        raise ConfigError(
            "replica.fetch.wait.max.ms",
            config.replica_fetch_wait_max_ms,
            "must not exceed replica.socket.timeout.ms or replica.lag.time.max.ms",
        )
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise ConfigError(
            "queued.max.request.bytes",
            config.queued_max_request_bytes,
            f"must be at least socket.request.max.bytes ({config.socket_request_max_bytes})",
        )
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise ConfigError("max.connections.per.ip", 0, "can be zero only if max.connections.per.ip.overrides is set")
    if 0 <= config.connections_max_idle_ms <= config.connection_failed_authentication_delay_ms:
        raise ConfigError(
            "connections.max.idle.ms",
            config.connections_max_idle_ms,
            f"must exceed connection.failed.authentication.delay.ms ({config.connection_failed_authentication_delay_ms})",
        )
    for key in ("socket.send.buffer.bytes", "socket.receive.buffer.bytes"):
        size = config.value_of(key)
        if isinstance(size, int) and size < 1 and size != -1:
            # Kafka takes it, and fails when it opens the first socket.
            raise ConfigError(key, size, "must be at least 1 or equal to -1")
    if not 0 <= config.offsets_topic_compression_codec <= 4:
        raise ConfigError("offsets.topic.compression.codec", config.offsets_topic_compression_codec, "must be between 0 and 4")


def _check_group_limits(values: _Values) -> None:
    """What a kind of group is given lies between the limits of what a single group may ask for (GroupCoordinatorConfig)."""
    for kind in ("consumer", "share", "streams"):
        if not any(name.startswith(f"group.{kind}.") for name in values):
            continue  # Kafka's defaults fit together
        for setting in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            names = (f"group.{kind}.min.{setting}", f"group.{kind}.{setting}", f"group.{kind}.max.{setting}")
            low, value, high = (values[name] for name in names)
            if not low <= value <= high:
                raise ConfigError(names[1], value, f"must be between {names[0]} ({low}) and {names[2]} ({high})")
        heartbeat_ms, session_ms = values[f"group.{kind}.heartbeat.interval.ms"], values[f"group.{kind}.session.timeout.ms"]
        if heartbeat_ms >= session_ms:
            message = f"must be less than group.{kind}.session.timeout.ms ({session_ms})"
            raise ConfigError(f"group.{kind}.heartbeat.interval.ms", heartbeat_ms, message)
    low, high = values["group.min.session.timeout.ms"], values["group.max.session.timeout.ms"]
    if low > high:
        # Kafka starts, and then refuses every member's session timeout.
        raise ConfigError("group.min.session.timeout.ms", low, f"must not exceed group.max.session.timeout.ms ({high})")
