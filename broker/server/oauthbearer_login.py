"""OAUTHBEARER as a client: where tokens come from, by Kafka's properties, for nodes and for our own commands.

    sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
    sasl.oauthbearer.token.endpoint.url=https://…        by the client credentials grant (RFC 6749, section 4.4); or file:/…, a token
    sasl.oauthbearer.client.credentials.client.id=…      or clientId, clientSecret and scope in sasl.jaas.config
    sasl.oauthbearer.client.credentials.client.secret=…
    sasl.oauthbearer.scope=…

Refused: http:, other retrievers and handlers, assertions. Without the handler Kafka's client would make itself an unsigned token.

Source: OAuthBearerLoginCallbackHandler, DefaultJwtRetriever, ClientCredentialsJwtRetriever, FileJwtRetriever, HttpJwtRetriever,
ClientSecretRequestFormatter, ConfigOrJaas, JwtResponseParser, Retry.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus, unquote, urlsplit

from broker.security.sasl import access_token
from broker.security.sasl.access_token import AccessToken, RefreshRules
from broker.security.sasl.login_properties import parse_entry
from broker.security.sasl.oauthbearer import OAUTHBEARER, TokenError
from broker.security.tls.files import StoreFileError, read_store_file
from broker.server.oauthbearer_listener import provider_tls
from config.listener_settings import ListenerSettings
from config.properties import ConfigError
from protocol.sasl.exchange import SaslPropertyError
from protocol.sasl.jaas import OAUTH_BEARER_LOGIN_MODULE
from protocol.sasl.oauthbearer_client import check_extensions

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
CALLBACK_HANDLER = f"{PACKAGE}.OAuthBearerLoginCallbackHandler"
BY_FILE, BY_CREDENTIALS = f"{PACKAGE}.FileJwtRetriever", f"{PACKAGE}.ClientCredentialsJwtRetriever"
RETRIEVERS = (f"{PACKAGE}.DefaultJwtRetriever", BY_CREDENTIALS, BY_FILE)
HANDLER_KEY, URL_KEY = "sasl.login.callback.handler.class", "sasl.oauthbearer.token.endpoint.url"
RETRIEVER_KEY, JAAS_KEY = "sasl.oauthbearer.jwt.retriever.class", "sasl.jaas.config"
CLIENT_ID_KEY, CLIENT_SECRET_KEY = "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"
SCOPE_KEY = "sasl.oauthbearer.scope"
EXTENSION_PREFIX = "extension_"
TIMEOUT_S = 10.0
"""Where sasl.login.connect.timeout.ms and sasl.login.read.timeout.ms are not set: Kafka waits for ever then."""
ANSWER_BYTES_MAX = 1 << 20


class FetchError(Exception):
    """There is no token; `str()` says why, without a secret. `is_final`: another try would have the same end (UNRETRYABLE_HTTP_CODES)."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class Provider(NamedTuple):
    """Where tokens come from. `fetch` blocks, and raises FetchError."""

    fetch: Callable[[], AccessToken]
    refresh: RefreshRules
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return "Provider()"


def make_provider(
    settings: ListenerSettings, handler: tuple[str, str | None], jaas: tuple[str, str | None], *, encodes_header: bool = False
) -> Provider:
    """`handler` and `jaas` are the keys and the texts of these two properties. Raises ConfigError."""

    def value(name: str) -> Any:
        return settings.value_of_mechanism(OAUTHBEARER, name)

    if handler[1] != CALLBACK_HANDLER:
        raise ConfigError(handler[0], handler[1], f"must be {CALLBACK_HANDLER}: without it Kafka's client makes itself an unsigned token")
    if jaas[1] is None:
        raise ConfigError(jaas[0], None, "", message=f"{jaas[0]}: must be set, with {OAUTH_BEARER_LOGIN_MODULE}")
    options = parse_entry(jaas[1], jaas[0], OAUTH_BEARER_LOGIN_MODULE).options
    retriever = value(RETRIEVER_KEY)
    if retriever not in RETRIEVERS:
        raise ConfigError(RETRIEVER_KEY, retriever, f"must be one of {', '.join(RETRIEVERS)}")
    retrieve = _retriever(value, options, jaas[0], retriever, encodes_header=encodes_header)
    extensions = {name.removeprefix(EXTENSION_PREFIX): text for name, text in options.items() if name.startswith(EXTENSION_PREFIX)}
    try:
        check_extensions(extensions, jaas[0])
    except SaslPropertyError as e:
        raise ConfigError(e.key, None, "", message=str(e)) from None
    sub_claim_name = str(value("sasl.oauthbearer.sub.claim.name"))

    def fetch() -> AccessToken:
        try:
            return access_token.parse(retrieve(), sub_claim_name=sub_claim_name)
        except TokenError as e:
            raise FetchError(str(e)) from e

    rules = RefreshRules(
        float(value("sasl.login.refresh.window.factor")),
        float(value("sasl.login.refresh.window.jitter")),
        int(value("sasl.login.refresh.min.period.seconds")),
        int(value("sasl.login.refresh.buffer.seconds")),
    )
    backoffs = int(value("sasl.login.retry.backoff.ms")), int(value("sasl.login.retry.backoff.max.ms"))
    return Provider(fetch, rules, *backoffs, extensions)


def _retriever(
    value: Callable[[str], Any], options: Mapping[str, str], jaas_key: str, retriever: str, *, encodes_header: bool
) -> Callable[[], str]:
    """What returns a token as text; it raises FetchError."""
    url = str(value(URL_KEY) or "")
    parts = urlsplit(url)
    is_file = parts.scheme == "file" and parts.netloc in ("", "localhost") and bool(parts.path)
    if is_file and retriever != BY_CREDENTIALS:
        return lambda: _read_token(unquote(parts.path))
    if retriever == BY_FILE or parts.scheme != "https" or not parts.hostname:
        wanted = "an address with file:" if retriever == BY_FILE else "an address with https: or file:"
        raise ConfigError(URL_KEY, url, f"must be set: {wanted}")
    for name in ("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.claim.iss"):
        if value(name):
            raise ConfigError(name, value(name), "assertions are not supported; use a client's id and secret")
    client_id = _one_of(value, CLIENT_ID_KEY, options, "clientId")
    secret = _one_of(value, CLIENT_SECRET_KEY, options, "clientSecret")
    for key, option, text in ((CLIENT_ID_KEY, "clientId", client_id), (CLIENT_SECRET_KEY, "clientSecret", secret)):
        if not text:
            raise ConfigError(key, None, "", message=f"{key}: must be set, or {option} in {jaas_key}")
    scope = _one_of(value, SCOPE_KEY, options, "scope")
    encode: Callable[[str], str] = quote_plus if encodes_header else str
    basic = base64.b64encode(f"{encode(client_id)}:{encode(secret)}".encode()).decode()
    body = "grant_type=client_credentials" + (f"&scope={encode(scope)}" if scope else "")
    headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded", "Cache-Control": "no-cache"}
    from broker.security.tls.context import client_context

    context = client_context(provider_tls(options), read_store_file)
    timeout_s = _timeout_s(value("sasl.login.connect.timeout.ms"), value("sasl.login.read.timeout.ms"))
    return lambda: _post(url, context, headers, body.encode(), timeout_s)


def _one_of(value: Callable[[str], Any], key: str, options: Mapping[str, str], option: str) -> str:
    """The property, else the option of the JAAS line; "" without both."""
    found = value(key)
    return str(options.get(option, "") if found is None else found).strip()


def _timeout_s(connect_ms: int | None, read_ms: int | None) -> float:
    """One for both: the longer."""
    given = [each for each in (connect_ms, read_ms) if each]
    return max(given) / 1000 if given else TIMEOUT_S


def _read_token(path: str) -> str:
    try:
        return read_store_file(path).decode("ascii").strip()
    except StoreFileError as e:
        raise FetchError(f"the file {e}") from e
    except UnicodeDecodeError as e:
        raise FetchError(f"the file {path} has no token") from e


def _post(url: str, context: Any, headers: Mapping[str, str], body: bytes, timeout_s: float) -> str:
    from broker.server.https_get import GetError, https_post

    try:
        answer = https_post(url, context, headers, body, ANSWER_BYTES_MAX, timeout_s)
    except GetError as e:
        raise FetchError(f"{url}: {e}", is_final=e.is_final) from e
    try:
        members = json.loads(answer)
        tokens = [members.get(name) for name in ("access_token", "id_token")]
    except (ValueError, AttributeError, RecursionError) as e:
        raise FetchError(f"{url}: the answer is no JSON object") from e
    token = next((each.strip() for each in tokens if isinstance(each, str) and each.strip()), None)
    if token is None:
        raise FetchError(f"{url}: the answer has no access_token")
    return token
