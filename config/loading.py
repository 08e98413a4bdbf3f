"""Where settings come from: the shipped server.properties or a file, then KAFKA_… environment variables, then --override.

Later ones win. Reads the one file it is told to read and nothing else; `environ` and `overrides` are arguments. Without a file of the
user's, what the user sets of a group of settings that belong together replaces the group.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from config.properties import ConfigError
from config.server import SERVER_PROPERTIES, ServerConfig
from config.server_rules import server_config

DEFAULT_PROPERTIES_PATH = Path(__file__).parent / "server.properties"
DEFAULTS_VARIABLE = "BARNABAS_DEFAULTS"
"""Names the file that stands in for the shipped one. The image sets it: its listeners and folders are others."""
MOUNTED_VARIABLE = "BARNABAS_MOUNTED"
"""Names the file that a user of the image may mount; if it is there, it stands in for all that the image sets."""

# What only goes with the file's own listeners.
_WITH_LISTENERS = ("advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name")
# What only goes with a node that is alone.
_OF_SINGLE_NODE = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr")

_log = logging.getLogger("barnabas.config")

# What the official container image keeps for itself (KafkaDockerWrapper.ExcludeServerPropsEnv).
_IMAGE_VARIABLES = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_CLUSTER_ID",
    }
)


def load_server_config(path: str | Path | None, environ: Mapping[str, str], overrides: Iterable[str]) -> ServerConfig:
    """The settings of `path` (None: the shipped server.properties), `environ` and `overrides` (each `key=value`).

    `log_warnings` says afterwards what of it is ignored or dubious. Raises ConfigError, whose text is the one line to print.
    """
    texts = properties_from_environment(environ)
    texts |= dict(_split_override(override) for override in overrides)
    mounted = Path(environ.get(MOUNTED_VARIABLE) or os.devnull)
    if path is not None:
        properties = read_properties(Path(path)) | texts
    elif mounted.is_file():  # Apache Kafka's image, too, formats empty directories by itself
        properties = {"barnabas.auto.format": "true"} | read_properties(mounted) | texts
    else:
        properties = _fitting(read_properties(Path(environ.get(DEFAULTS_VARIABLE) or DEFAULT_PROPERTIES_PATH)), texts) | texts
    if environ.get(DEFAULTS_VARIABLE):
        from config.image import check_former_data, image_properties

        is_default = "log.dirs" in properties and not texts.keys() & {"log.dirs", "log.dir"}
        if path is None and not mounted.is_file() and is_default:
            check_former_data(properties["log.dirs"])
        properties = image_properties(properties, environ)
    return server_config(properties)


def log_warnings(config: ServerConfig) -> None:
    """Warn, in one line each, of unknown keys that were set, of properties that were set and have no effect here, of lists that name
    something twice, of listeners that are not advertised, and of numbers of replicas that a single node cannot have."""
    if config.unknown_keys:
        _log.warning("unknown configurations are ignored: %s", ", ".join(ascii(key)[1:-1] for key in config.unknown_keys))
    idle = config.settings_without_effect()
    if idle:
        _log.warning("configurations without effect here, DescribeConfigs tells why: %s", ", ".join(idle))
    for key, text in config.texts.items():
        _warn_of_duplicates(key, text)
    advertised = [endpoint.listener_name for endpoint in config.advertised_listeners]
    for endpoint in config.client_listeners:
        if endpoint.listener_name not in advertised:
            _log.warning("listener %s is not in advertised.listeners: clients that come by it find no broker", endpoint.listener_name)
    _warn_of_replicas(config)


def read_properties(path: Path) -> dict[str, str]:
    """The key-value pairs of a Java properties file. Raises ConfigError when it cannot be read."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as e:
        why = f"cannot be read: {e.strerror}"
        raise ConfigError("--config", path, why, message=f"{path} {why}") from e
    except ValueError as e:
        why = f"is not a properties file: {e}"
        raise ConfigError("--config", path, why, message=f"{path} {why}") from e


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format: `#` and `!` comments, `=`, `:` or blank between key and value, `\\` joins lines and escapes.

    Raises ValueError for a \\u that four hexadecimal digits do not follow.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _key_end(line)
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        properties[_unescape(line[:end])] = _unescape(rest)
    return properties


def properties_from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`KAFKA_LOG_DIRS=…` as `log.dirs`: `_` is a dot, `__` an underscore, `___` a dash, as in the official container image.

    The image derives listeners from advertised.listeners when only those are given, on every address; so does this. Raises ConfigError for
    a variable in the manner of bitnami's image: its KAFKA_CFG_LISTENERS would be cfg.listeners, which is no property.
    """
    for key in environ:
        if key.startswith("KAFKA_CFG_"):
            why = f"is a name of bitnami's image; set KAFKA_{key.removeprefix('KAFKA_CFG_')} (and CLUSTER_ID for KAFKA_KRAFT_CLUSTER_ID)"
            raise ConfigError(key, environ[key], why, message=f"{key} {why}")
    properties = {
        key.removeprefix("KAFKA_").lower().replace("_", ".").replace("...", "-").replace("..", "_"): value
        for key, value in environ.items()
        if key.startswith("KAFKA_") and len(key) > len("KAFKA_") and key not in _IMAGE_VARIABLES
    }
    for key in ("listeners", "advertised.listeners"):
        if not properties.get(key):
            properties.pop(key, None)
    if "advertised.listeners" in properties and "listeners" not in properties:
        properties["listeners"] = re.sub(r"://[^:]*:", "://0.0.0.0:", properties["advertised.listeners"])
    return properties


def _fitting(defaults: dict[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    """`defaults` without what does not go with `texts`, which a person has set: the names of listeners that are replaced, and numbers of
    replicas for a node that is alone. Raises ConfigError for a map of other listeners than those of `defaults`."""
    left_out: tuple[str, ...] = _WITH_LISTENERS if "listeners" in texts else ()
    protocols = "listener.security.protocol.map"
    if protocols in defaults and protocols in texts and not left_out:
        raise ConfigError(protocols, texts[protocols], "goes with listeners or advertised.listeners, and neither is set")
    roles = texts.get("process.roles", defaults.get("process.roles", "")).split(",")
    has_others = "," in texts.get("controller.quorum.voters", "") or len(roles) == 1
    if "log.dir" in texts:  # log.dirs would win over it
        left_out += ("log.dirs",)
    if has_others or "," in texts.get("controller.quorum.bootstrap.servers", ""):
        left_out += _OF_SINGLE_NODE
    return {key: text for key, text in defaults.items() if key not in left_out}


def _warn_of_duplicates(key: str, text: str) -> None:
    known = SERVER_PROPERTIES.get(key)
    kept = None if known is None else known.parse(text)
    if isinstance(kept, tuple) and 0 < len(kept) <= text.count(","):
        _log.warning("configuration %s names something twice; what counts is %s", key, ascii(",".join(kept))[1:-1])


def _warn_of_replicas(config: ServerConfig) -> None:
    """A configuration of three lines gets Kafka's replication factor 3 for internal topics, and consumers would wait without a word.

    More min.insync.replicas than there are replicas do no harm: as in Kafka, a partition asks for no more than it has. A node that names
    other voters, or a quorum to join, is not single.
    """
    if len(config.controller_quorum_voters) > 1 or config.controller_quorum_bootstrap_servers or len(config.process_roles) < 2:
        return
    for key, wanted, consequence in (
        ("offsets.topic.replication.factor", config.offsets_topic_replication_factor, "consumer groups cannot work"),
        ("default.replication.factor", config.default_replication_factor, "topics are created only with a replication factor of their own"),
    ):
        if wanted > 1:
            _log.warning("%s=%d, but this is a single node: %s; set %s=1", key, wanted, consequence, key)


def _split_override(override: str) -> tuple[str, str]:
    key, separator, value = override.partition("=")
    if not separator or not key.strip():
        raise ConfigError("--override", override, "expected key=value")
    return key.strip(), value.strip()


def _logical_lines(text: str) -> Iterable[str]:
    """Lines without comments and blanks, continuation lines joined."""
    pending = ""
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = ""
        yield line
    if pending:
        yield pending


def _key_end(line: str) -> int:
    """The position of the first separator that is not escaped."""
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, position = [], 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character == "u":
                if len(text) < position + 4:
                    raise ValueError(f"malformed \\u escape in {text}")
                character = chr(int(text[position : position + 4], 16))
                position += 4
            else:
                character = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(character, character)
        out.append(character)
    return "".join(out)
