"""OAUTHBEARER of a Java client's properties, by the names of librdkafka's own client of the credentials grant (method oidc).

    sasl.oauthbearer.token.endpoint.url                    the same
    sasl.oauthbearer.client.credentials.client.id, .secret   sasl.oauthbearer.client.id, .secret; or clientId, clientSecret of the JAAS line
    sasl.oauthbearer.scope, or scope of the JAAS line      sasl.oauthbearer.scope
    extension_NAME=… of the JAAS line                      sasl.oauthbearer.extensions
    ssl.truststore.… of the JAAS line                      https.ca.pem: whom the endpoint is trusted by

What librdkafka has not is refused by its name: tokens of files, assertions, other handlers and retrievers, a certificate for the endpoint.

Source: OAuthBearerLoginCallbackHandler, ConfigOrJaas, JaasOptionsUtils (Apache Kafka 4.3); librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.cli.errors import NotUnderstoodError
from broker.security.tls import pem
from broker.security.tls.files import read_store_file
from broker.security.tls.settings import TlsSettings
from broker.security.tls.stores import load_trust
from protocol.sasl.jaas import OAUTH_BEARER_LOGIN_MODULE, JaasEntry

OAUTHBEARER = "OAUTHBEARER"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
HANDLER, URL, RETRIEVER = "sasl.login.callback.handler.class", "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwt.retriever.class"
CREDENTIALS = {
    "client.id": ("sasl.oauthbearer.client.credentials.client.id", "clientId"),
    "client.secret": ("sasl.oauthbearer.client.credentials.client.secret", "clientSecret"),
    "scope": ("sasl.oauthbearer.scope", "scope"),
}
"""Java's name, and that in the JAAS line, by the end of librdkafka's."""
RETRIEVERS = (f"{PACKAGE}.DefaultJwtRetriever", f"{PACKAGE}.ClientCredentialsJwtRetriever")
TIMING = ("sasl.login.refresh.", "sasl.login.retry.", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")
"""How these begin: they are for the wire's own client; librdkafka keeps its times."""
EXTENSION = "extension_"
OF_LINE = ("clientId", "clientSecret", "scope")
TRUST = "ssl.truststore."


def is_read(key: str) -> bool:
    """Whether `of_oauthbearer` knows that property."""
    return key in (HANDLER, URL, RETRIEVER) or key in {name for name, _ in CREDENTIALS.values()} or key.startswith(TIMING)


def of_oauthbearer(texts: Mapping[str, str], entry: JaasEntry) -> dict[str, str]:
    """By librdkafka's names. `entry` is the JAAS line. Raises NotUnderstoodError."""
    if entry.module != OAUTH_BEARER_LOGIN_MODULE:
        raise NotUnderstoodError(f"sasl.jaas.config: OAUTHBEARER logs in by {OAUTH_BEARER_LOGIN_MODULE}")
    if texts.get(HANDLER) != f"{PACKAGE}.OAuthBearerLoginCallbackHandler":
        raise NotUnderstoodError(f"{HANDLER}: it is {PACKAGE}.OAuthBearerLoginCallbackHandler; other handlers are Java's")
    if texts.get(RETRIEVER, RETRIEVERS[0]) not in RETRIEVERS:
        raise NotUnderstoodError(f"{RETRIEVER}: librdkafka has the client credentials grant alone: {' or '.join(RETRIEVERS)}")
    if not texts.get(URL, "").startswith("https:"):
        raise NotUnderstoodError(f"{URL}: it is an address with https:; a token of a file is not read")
    settings = {"sasl.oauthbearer.method": "oidc", URL: texts[URL]}
    for name, (key, option) in CREDENTIALS.items():
        if text := texts.get(key) or entry.options.get(option):
            settings[f"sasl.oauthbearer.{name}"] = text
    if missing := [CREDENTIALS[name][0] for name in ("client.id", "client.secret") if f"sasl.oauthbearer.{name}" not in settings]:
        raise NotUnderstoodError(f"{', '.join(missing)}: it is missing, here and in sasl.jaas.config")
    known = (*OF_LINE, "ssl.protocol")
    if refused := [name for name in entry.options if name not in known and not name.startswith((EXTENSION, TRUST))]:
        raise NotUnderstoodError(f"{', '.join(refused)} in sasl.jaas.config: librdkafka has no counterpart")
    extensions = {name.removeprefix(EXTENSION): text for name, text in entry.options.items() if name.startswith(EXTENSION)}
    if any("," in text for text in extensions.values()):
        raise NotUnderstoodError("an extension in sasl.jaas.config has a comma, between which librdkafka has them")
    if extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(f"{name}={text}" for name, text in extensions.items())
    trust = load_trust(_tls(entry.options), read_store_file)
    if trust is not None:
        settings["https.ca.pem"] = pem.write([pem.Block("CERTIFICATE", certificate.der) for certificate in trust]).decode()
    return settings


def _tls(options: Mapping[str, str]) -> TlsSettings:
    return TlsSettings(
        truststore_type=options.get("ssl.truststore.type", "JKS"),
        truststore_location=options.get("ssl.truststore.location"),
        truststore_password=options.get("ssl.truststore.password"),
        truststore_certificates=options.get("ssl.truststore.certificates"),
    )
