"""Which properties a listener, and a SASL mechanism of it, may have of its own (`listener.name.<listener>.<mechanism>.<property>`)."""

from __future__ import annotations

OAUTHBEARER_PROPERTIES = (
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
)
"""How tokens of OAUTHBEARER are checked."""

TOKEN_PROPERTIES = (
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
)
"""How a node gets its own tokens of OAUTHBEARER, to log in to others."""

LISTENER_PROPERTIES = (
    *OAUTHBEARER_PROPERTIES,
    *TOKEN_PROPERTIES,
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "max.connections",
    "sasl.enabled.mechanisms",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.server.max.receive.size",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.provider",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""What a listener may have of its own."""

MECHANISM_PROPERTIES = (
    *OAUTHBEARER_PROPERTIES,
    *TOKEN_PROPERTIES,
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.server.callback.handler.class",
)
"""What a SASL mechanism of a listener may have of its own."""

DYNAMIC_LISTENER_PROPERTIES = frozenset(
    {
        "max.connection.creation.rate",
        "max.connections",
        "sasl.enabled.mechanisms",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""What may change while the node runs, by a request of whoever may alter its configs. Nothing else has an effect: no address, no class, no
check of a name that is switched off (DynamicListenerConfig.RECONFIGURABLE_CONFIGS and SslConfigs.RECONFIGURABLE_CONFIGS)."""

DYNAMIC_MECHANISM_PROPERTIES = frozenset({"sasl.jaas.config"})
"""As DYNAMIC_LISTENER_PROPERTIES, of a mechanism."""

PREFIX = "listener.name."


def has_effect_for_listener(name: str) -> bool:
    """Whether `name`, which begins with PREFIX, is a property that a listener or a mechanism of it may have."""
    _, _, of_listener = name.removeprefix(PREFIX).partition(".")
    _, _, of_mechanism = of_listener.partition(".")
    return of_listener in LISTENER_PROPERTIES or of_mechanism in MECHANISM_PROPERTIES


def is_dynamic(name: str) -> bool:
    """Whether `name` is a listener's property, or a mechanism's of it, that may change while the node runs."""
    if not name.startswith(PREFIX):
        return False
    _, _, of_listener = name.removeprefix(PREFIX).partition(".")
    _, _, of_mechanism = of_listener.partition(".")
    return of_listener in DYNAMIC_LISTENER_PROPERTIES or of_mechanism in DYNAMIC_MECHANISM_PROPERTIES
