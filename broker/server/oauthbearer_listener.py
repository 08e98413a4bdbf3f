"""OAUTHBEARER on a listener: from its properties to what validates tokens. Imported where a listener has the mechanism.

Refused, where Kafka's effect would be to let in whom nobody has checked: a listener without Kafka's validating callback handler takes
unsigned tokens there.

Source: OAuthBearerValidatorCallbackHandler, VerificationKeyResolverFactory, ConfigurationUtils.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from broker.loop.blocking import RunBlocking
from broker.loop.clock import Clock
from broker.observability.limited_log import LimitedLog
from broker.security.sasl.jwks import JwksError, KeySet, parse_key_set
from broker.security.sasl.jwt_validator import JwtRules, JwtValidator
from broker.security.sasl.login_properties import parse_entry
from broker.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer
from broker.security.tls.files import STORE_SIZE_MAX, StoreFileError, read_store_file
from broker.security.tls.settings import TlsSettings
from broker.server.jwks_keeper import JwksKeeper
from config.listener_settings import ListenerSettings
from config.properties import ConfigError
from protocol.sasl.jaas import OAUTH_BEARER_LOGIN_MODULE

log = logging.getLogger("barnabas.security")

CALLBACK_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
)
HANDLER_KEY = "sasl.server.callback.handler.class"
URL_KEY = "sasl.oauthbearer.jwks.endpoint.url"
VALIDATOR_KEY = "sasl.oauthbearer.jwt.validator.class"


class OAuthBearerValidator:
    """Makes the server's side of each login. Owns the keys."""

    def __init__(self, rules: JwtRules, keeper: JwksKeeper, clock: Clock) -> None:
        self._keeper = keeper
        self._log = LimitedLog(log, clock)
        self._validator = JwtValidator(rules, lambda: keeper.keys, clock.now_ms, keeper.refresh_for_unknown_key)

    def start(self) -> OAuthBearerServer:
        return OAuthBearerServer(self._validator.validate, self._refused)

    async def close(self) -> None:
        await self._keeper.close()

    def _refused(self, reason: str) -> None:
        self._log.info("token refused", "a token of OAUTHBEARER is refused: %s", reason)


def make_validator(settings: ListenerSettings, clock: Clock, run_blocking: RunBlocking, *, may_block: bool = True) -> OAuthBearerValidator:
    """Fetches the keys before it returns, if nobody is served yet and it may block; otherwise no token is taken until they are there.
    Raises ConfigError."""

    def value(name: str) -> Any:
        return settings.value_of_mechanism(OAUTHBEARER, name)

    key, handler = settings.of_mechanism(OAUTHBEARER, HANDLER_KEY)
    if handler != CALLBACK_HANDLER:
        raise ConfigError(key, handler, f"must be {CALLBACK_HANDLER}: without it unsigned tokens would be taken")
    if value(VALIDATOR_KEY) not in VALIDATORS:
        raise ConfigError(VALIDATOR_KEY, value(VALIDATOR_KEY), "other validators, written in Java, cannot be loaded")
    keeper = JwksKeeper(
        fetch_from(value(URL_KEY), _tls_of(settings)),
        clock,
        run_blocking,
        refresh_ms=_at_least(1, settings, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        retry_backoff_ms=_at_least(0, settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        retry_backoff_max_ms=_at_least(0, settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    rules = JwtRules(
        expected_audiences=tuple(value("sasl.oauthbearer.expected.audience")),
        expected_issuer=value("sasl.oauthbearer.expected.issuer") or None,
        clock_skew_seconds=_at_least(0, settings, "sasl.oauthbearer.clock.skew.seconds"),
        sub_claim_name=_name(settings, "sasl.oauthbearer.sub.claim.name"),
        scope_claim_name=_name(settings, "sasl.oauthbearer.scope.claim.name"),
    )
    try:
        if may_block:
            keeper.start()
        else:
            keeper.start_without_keys()
    except JwksError as e:
        raise ConfigError(URL_KEY, value(URL_KEY), str(e)) from e
    for name, is_set in (("audience", rules.expected_audiences), ("issuer", rules.expected_issuer)):
        if not is_set:
            log.warning("sasl.oauthbearer.expected.%s is not set: the tokens of listener %s need none", name, settings.listener_name)
    return OAuthBearerValidator(rules, keeper, clock)


def fetch_from(url: str | None, tls: TlsSettings) -> Callable[[], KeySet]:
    """Returns what fetches the keys, and blocks meanwhile: it raises JwksError. Raises ConfigError for an address that is none."""
    if not url:
        raise ConfigError(URL_KEY, url, "must be set: the keys of the OAuth provider, by https: or file:")
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        path = unquote(parts.path)
        return lambda: _read_keys(path)
    if parts.scheme != "https" or not parts.hostname:
        raise ConfigError(URL_KEY, url, "must be an address with https: or file:")
    from broker.security.tls.context import client_context

    context = client_context(tls, read_store_file)
    return lambda: _get_keys(url, context)


def _tls_of(settings: ListenerSettings) -> TlsSettings:
    """How the provider is reached: its authority may be in a truststore, by options of the JAAS line, as in Kafka. Raises ConfigError."""
    key, text = settings.of_mechanism(OAUTHBEARER, "sasl.jaas.config")
    options: Mapping[str, str] = {}
    if text is not None:
        options = parse_entry(text, key, OAUTH_BEARER_LOGIN_MODULE).options
    return provider_tls(options)


def provider_tls(options: Mapping[str, str]) -> TlsSettings:
    """How a provider is reached, by the options of the JAAS line (JaasOptionsUtils.createSSLSocketFactory)."""
    return TlsSettings(
        keystore_type=options.get("ssl.keystore.type", "JKS"),
        keystore_location=options.get("ssl.keystore.location"),
        keystore_password=options.get("ssl.keystore.password"),
        keystore_key=options.get("ssl.keystore.key"),
        keystore_certificate_chain=options.get("ssl.keystore.certificate.chain"),
        key_password=options.get("ssl.key.password"),
        truststore_type=options.get("ssl.truststore.type", "JKS"),
        truststore_location=options.get("ssl.truststore.location"),
        truststore_password=options.get("ssl.truststore.password"),
        truststore_certificates=options.get("ssl.truststore.certificates"),
        enabled_protocols=("TLSv1.2", "TLSv1.3"),
    )


def _read_keys(path: str) -> KeySet:
    try:
        content = read_store_file(path)
    except StoreFileError as e:
        raise JwksError(f"the file {e}") from e
    return parse_key_set(content)


def _get_keys(url: str, context: Any) -> KeySet:
    from broker.server.https_get import GetError, https_get

    try:
        content = https_get(url, context, STORE_SIZE_MAX)
    except GetError as e:
        raise JwksError(str(e)) from e
    return parse_key_set(content)


def _at_least(lowest: int, settings: ListenerSettings, name: str) -> int:
    found = cast("int", settings.value_of_mechanism(OAUTHBEARER, name))
    if found < lowest:
        raise ConfigError(name, found, f"must be at least {lowest}")
    return found


def _name(settings: ListenerSettings, name: str) -> str:
    found = str(settings.value_of_mechanism(OAUTHBEARER, name) or "").strip()
    if not found:
        raise ConfigError(name, found, "must not be empty")
    return found
