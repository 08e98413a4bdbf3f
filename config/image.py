"""What Apache Kafka's container image makes of variables that name no property: files of secrets, and the login modules of the JVM.

Source: docker/resources/common-scripts/configure; JaasContext.loadServerContext.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from config.properties import ConfigError

SECRETS_DIRECTORY = Path("/etc/kafka/secrets")
FORMER_DATA = (Path("/tmp/kraft-combined-logs"), Path("/tmp/kafka-logs"))
"""Where Apache Kafka's image has its data unless it is told: by its own server.properties, and by Kafka's default."""

META_PROPERTIES = "meta.properties"
# A variable that names a file of the secrets' directory, as a property, and the property that the image makes of it.
_LOCATIONS = {"ssl.keystore.filename": "ssl.keystore.location", "ssl.truststore.filename": "ssl.truststore.location"}
# The same, where the file holds the property's value.
_CREDENTIALS = {
    "ssl.keystore.credentials": "ssl.keystore.password",
    "ssl.key.credentials": "ssl.key.password",
    "ssl.truststore.credentials": "ssl.truststore.password",
}
_LOGIN_CONFIG = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
_SECTION = re.compile(r'([\w.\-]+)\s*\{((?:"(?:\\.|[^"\\])*"|[^}"])*)\}\s*;')
_MODULE = re.compile(r'\s*([\w.$]+)((?:"(?:\\.|[^"\\])*"|[^;"])*;)')
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|^\s*#[^\n]*|/\*.*?\*/', re.DOTALL | re.MULTILINE)
_MECHANISMS = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}


def image_properties(properties: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """`properties` as the image completes them.

    KAFKA_SSL_KEYSTORE_FILENAME and the like name files in SECRETS_DIRECTORY. A file of login modules, which KAFKA_OPTS gives to the JVM,
    becomes the sasl.jaas.config of each listener and mechanism that has none. Raises ConfigError for a file that cannot be read.
    """
    completed = {key: text for key, text in properties.items() if key not in _LOCATIONS and key not in _CREDENTIALS}
    for key in _LOCATIONS.keys() & properties.keys():
        completed.setdefault(_LOCATIONS[key], str(SECRETS_DIRECTORY / properties[key]))
    for key in _CREDENTIALS.keys() & properties.keys():
        completed.setdefault(_CREDENTIALS[key], _read(SECRETS_DIRECTORY / properties[key], _variable(key)).rstrip("\n"))
    login_config = _LOGIN_CONFIG.search(environ.get("KAFKA_OPTS", ""))
    if login_config is not None:
        sections = _sections(_read(Path(login_config[1]), "KAFKA_OPTS"))
        for key, entry in _logins(completed, sections):
            completed.setdefault(key, entry)
    return completed


def check_former_data(log_dirs: str) -> None:
    """Where nobody has set log.dirs, Apache Kafka's image would serve the data that are mounted at one of its own places. This one would
    begin anew in `log_dirs`, beside them. Raises ConfigError if there are some."""
    for path in FORMER_DATA:
        if (path / META_PROPERTIES).exists():
            why = f"is not set, and {path} has the data of a node: KAFKA_LOG_DIRS={path} serves them, KAFKA_LOG_DIRS={log_dirs} does not"
            raise ConfigError("KAFKA_LOG_DIRS", "", why, message=f"KAFKA_LOG_DIRS {why}")


def _logins(properties: Mapping[str, str], sections: Mapping[str, list[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Properties of login modules, for listeners and their mechanisms. A listener's own section goes before the common one."""
    protocols = dict(pair.strip().split(":", 1) for pair in properties.get("listener.security.protocol.map", "").split(",") if ":" in pair)
    for endpoint in properties.get("listeners", "").split(","):
        name = endpoint.strip().partition("://")[0]
        if not protocols.get(name, name).startswith("SASL_"):
            continue
        prefix = f"listener.name.{name.lower()}."
        enabled = properties.get(f"{prefix}sasl.enabled.mechanisms", properties.get("sasl.enabled.mechanisms", ""))
        for module, entry in sections.get(f"{name.lower()}.KafkaServer") or sections.get("KafkaServer", []):
            for mechanism in _MECHANISMS.get(module.rpartition(".")[2], ()):
                if mechanism in [each.strip() for each in enabled.split(",")]:
                    yield f"{prefix}{mechanism.lower()}.sasl.jaas.config", entry


def _sections(text: str) -> dict[str, list[tuple[str, str]]]:
    """A JAAS file's login modules, each its class and the whole entry, by the section's name."""
    plain = _COMMENT.sub(lambda found: found[1] or " ", text)
    return {name: [(each[1], f"{each[1]}{each[2]}") for each in _MODULE.finditer(body)] for name, body in _SECTION.findall(plain)}


def _read(path: Path, variable: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        why = f"names {path}, which cannot be read: {e.strerror if isinstance(e, OSError) else 'it is no text'}"
        raise ConfigError(variable, path, why, message=f"{variable} {why}") from e


def _variable(key: str) -> str:
    return f"KAFKA_{key.upper().replace('.', '_')}"
