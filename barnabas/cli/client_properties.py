"""Files of client properties, a Java client's or librdkafka's, as both kinds of our clients need them.

Records and administration go through librdkafka, which has its own names; what it does not have goes through broker/cli/wire_client.py,
which takes Java's. Each file is translated to the other's names once. What cannot be translated is named, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.oauthbearer_properties import OAUTHBEARER, is_read, of_oauthbearer
from broker.security.tls import pem
from broker.security.tls.files import read_store_file
from broker.security.tls.stores import load_key, load_trust
from broker.server.listener_security import TLS_PROTOCOLS, tls_settings
from config.listener_settings import ListenerSettings
from config.loading import read_properties
from protocol.sasl import jaas
from protocol.sasl.exchange import SaslPropertyError

JAAS = "sasl.jaas.config"
SECRETS = frozenset(
    {"sasl.password", JAAS, "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password", "ssl.key.pem", "ssl.keystore.key"}
    | {"basic.auth.user.info", "schema.registry.basic.auth.user.info"}
    | {"sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "sasl.oauthbearer.client.credentials.client.secret"}
)
"""Whose values are shown nowhere and taken from no argument."""
OF_JAVA = (
    "ssl.truststore.",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate",
    JAAS,
    "key.",
    "value.",
    "sasl.login.",
    "sasl.oauthbearer.client.credentials.",
)
"""How the properties begin that only a Java client has: a file with one of them is a Java client's."""
JAVA_ONLY = frozenset({
    "auto.include.jmx.reporter", "buffer.memory", "default.api.timeout.ms", "exclude.internal.topics", "fetch.max.wait.ms",
    "interceptor.classes", "max.block.ms", "max.request.size", "metadata.max.idle.ms", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "partitioner.class", "receive.buffer.bytes",
    "security.providers", "send.buffer.bytes", "socket.connection.setup.timeout.max.ms", "ssl.enabled.protocols",
    "ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
})  # fmt: skip
"""These are a Java client's too. librdkafka does not know them, and works without them."""
SHARED = frozenset({
    "acks", "auto.offset.reset", "batch.size", "bootstrap.servers", "client.id", "client.rack", "compression.type", "enable.auto.commit",
    "enable.idempotence", "fetch.max.bytes", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
    "isolation.level", "linger.ms", "max.poll.interval.ms", "metadata.max.age.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "retries", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.mechanism", "security.protocol", "session.timeout.ms",
    "socket.connection.setup.timeout.ms", "transaction.timeout.ms", "transactional.id",
})  # fmt: skip
"""Of the same name and meaning in both."""
WITHOUT_MEANING = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""Of Java's, which say nothing about a connection: records are bytes here."""


REGISTRY = "schema.registry.url"
REGISTRY_LOGINS = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
"""As Confluent's serializers have them, and what wraps these."""
OF_REGISTRY = (REGISTRY, *REGISTRY_LOGINS, "basic.auth.credentials.source", "schema.registry.basic.auth.credentials.source")


class ClientProperties(NamedTuple):
    """`java` and `librdkafka` say the same with each other's names. `unread` are names that have no counterpart. `registry` is a schema
    registry's URL, and its login user:password, or ""."""

    java: dict[str, str]
    librdkafka: dict[str, str]
    unread: tuple[str, ...] = ()
    registry: str = ""
    registry_login: str = ""


def read_client_properties(path: Path) -> ClientProperties:
    """Raises ConfigError, or NotUnderstoodError for what belongs to a login or to TLS and cannot be carried out."""
    texts = read_properties(path)
    registry, login = texts.get(REGISTRY, "").partition(",")[0].strip(), next((texts[key] for key in REGISTRY_LOGINS if key in texts), "")
    texts = {key: value for key, value in texts.items() if key not in OF_REGISTRY}
    if any(key.startswith(OF_JAVA) or key in JAVA_ONLY for key in texts):
        found = _of_java(texts)
    else:
        lines = (line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#"))
        found = of_librdkafka({key: value for key, value in map(_split, lines) if key not in OF_REGISTRY})
    return found._replace(registry=registry, registry_login=login)


def of_librdkafka(texts: Mapping[str, str]) -> ClientProperties:
    """By librdkafka's names, which it checks itself."""
    return ClientProperties(_to_java(texts), dict(texts))


def jaas_text(mechanism: str, user: str, password: str) -> str:
    """The login of a user by PLAIN or SCRAM, as sasl.jaas.config."""
    module = jaas.PLAIN_LOGIN_MODULE if mechanism == "PLAIN" else jaas.SCRAM_LOGIN_MODULE
    return f"{module} required username={_quoted(user)} password={_quoted(password)};"


def _split(line: str) -> tuple[str, str]:
    key, _, value = line.partition("=")
    return key.strip(), value.strip()


def _of_java(texts: Mapping[str, str]) -> ClientProperties:
    settings = {key: value for key, value in texts.items() if key in SHARED}
    protocol = texts.get("security.protocol", "PLAINTEXT").upper()
    read = {*settings, *WITHOUT_MEANING}
    if protocol in TLS_PROTOCOLS:
        settings |= _tls(texts, is_of_sasl=protocol == "SASL_SSL")
    if protocol.startswith("SASL_"):
        settings |= _login(texts)
    is_by_token = texts.get("sasl.mechanism", "").upper() == OAUTHBEARER
    read |= {key for key in texts if key.startswith("ssl.") or (is_by_token and is_read(key))} | {JAAS}
    unread = tuple(sorted(set(texts) - read))
    if refused := [key for key in unread if key.startswith("sasl.")]:
        raise NotUnderstoodError(
            f"{', '.join(refused)}: a login is by PLAIN, SCRAM or OAUTHBEARER, and this has no counterpart in librdkafka"
        )
    return ClientProperties(dict(texts), settings, unread)


def _tls(texts: Mapping[str, str], *, is_of_sasl: bool) -> dict[str, str]:
    """The stores, whatever their type, as PEM. Raises ConfigError."""
    tls = tls_settings(ListenerSettings(texts, "command"), is_of_sasl=is_of_sasl)
    settings = {}
    if (trust := load_trust(tls, read_store_file)) is not None:
        settings["ssl.ca.pem"] = _pem([pem.Block("CERTIFICATE", certificate.der) for certificate in trust])
    if (key := load_key(tls, read_store_file)) is not None:
        settings["ssl.key.pem"] = _pem([key.key])
        settings["ssl.certificate.pem"] = _pem([pem.Block("CERTIFICATE", certificate.der) for certificate in key.chain])
        if key.key_password is not None:
            settings["ssl.key.password"] = key.key_password
    settings["ssl.endpoint.identification.algorithm"] = tls.endpoint_identification_algorithm.lower() or "none"
    return settings


def _pem(blocks: list[pem.Block]) -> str:
    return pem.write(blocks).decode()


def _login(texts: Mapping[str, str]) -> dict[str, str]:
    if JAAS not in texts:
        raise NotUnderstoodError(f"{JAAS} is missing: it has the user that logs in")
    try:
        entry = jaas.parse(texts[JAAS])
    except SaslPropertyError as e:
        raise NotUnderstoodError(str(e)) from e
    if texts.get("sasl.mechanism", "").upper() == OAUTHBEARER:
        return of_oauthbearer(texts, entry)
    if entry.options.get("tokenauth", "").lower() == "true":
        raise NotUnderstoodError(f"{JAAS}: librdkafka has no delegation tokens")
    return {"sasl.username": entry.options.get("username", ""), "sasl.password": entry.options.get("password", "")}


def _to_java(texts: Mapping[str, str]) -> dict[str, str]:
    """What says how to connect, as the wire client takes it."""
    java = {key: value for key, value in texts.items() if key in ("bootstrap.servers", "security.protocol", "ssl.key.password")}
    mechanism = texts.get("sasl.mechanism", texts.get("sasl.mechanisms"))
    if mechanism is not None:
        java["sasl.mechanism"] = mechanism
    if "sasl.username" in texts or "sasl.password" in texts:
        java[JAAS] = jaas_text(mechanism or "", texts.get("sasl.username", ""), texts.get("sasl.password", ""))
    if authority := _text_of(texts, "ssl.ca.pem", "ssl.ca.location"):
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    key, chain = _text_of(texts, "ssl.key.pem", "ssl.key.location"), _text_of(texts, "ssl.certificate.pem", "ssl.certificate.location")
    if key and chain:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
    elif "ssl.keystore.location" in texts:
        java |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": texts["ssl.keystore.location"]}
        java["ssl.keystore.password"] = texts.get("ssl.keystore.password", "")
    algorithm = texts.get("ssl.endpoint.identification.algorithm", "https").lower()
    java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    return java


def _text_of(texts: Mapping[str, str], inline: str, location: str) -> str | None:
    return Path(texts[location]).read_text() if location in texts and Path(texts[location]).is_file() else texts.get(inline)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
