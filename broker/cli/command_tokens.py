"""CommandTokens: the token of OAUTHBEARER by which a command logs in."""

from __future__ import annotations

import time

from broker.security.sasl.access_token import AccessToken
from broker.server.oauthbearer_login import FetchError, Provider
from protocol.sasl.exchange import SaslError
from protocol.sasl.oauthbearer_client import OAuthBearerClient


class CommandTokens:
    """For a command, which ends before its token does: fetched at the first login, with Kafka's retries, for all that follow."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._token: AccessToken | None = None

    def start_login(self) -> OAuthBearerClient:
        return OAuthBearerClient(self._find, self._provider.extensions)

    def _find(self) -> str:
        self._token = self._token or self._fetch()
        return self._token.text

    def _fetch(self) -> AccessToken:
        end_s = time.monotonic() + self._provider.retry_backoff_max_ms / 1000
        pause_s = self._provider.retry_backoff_ms / 1000
        while True:
            try:
                return self._provider.fetch()
            except FetchError as e:
                left_s = end_s - time.monotonic()
                if e.is_final or left_s <= 0:
                    raise SaslError(f"there is no token: {e}") from e
                time.sleep(min(pause_s, left_s))
                pause_s = max(pause_s * 2, 0.001)
