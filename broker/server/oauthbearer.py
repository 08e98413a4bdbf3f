"""OAuthBearer: a node's parts of OAUTHBEARER: what validates clients' tokens, and what keeps its own tokens for other nodes' listeners.

Each is made once, of the properties that the node was started with: no request may say where keys and tokens come from, and changes while
the node runs do not fetch them again. Imported where a listener has the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.loop.blocking import BlockingResult
from broker.platform import Platform
from broker.security.sasl.oauthbearer import OAUTHBEARER
from broker.server.oauthbearer_listener import OAuthBearerValidator, make_validator
from broker.server.oauthbearer_login import HANDLER_KEY, JAAS_KEY, URL_KEY, FetchError, make_provider
from broker.server.token_keeper import TokenKeeper
from config.listener_settings import ListenerSettings
from config.properties import ConfigError


class OAuthBearer:
    """One for a node; `texts` are its properties."""

    def __init__(self, texts: Mapping[str, str], platform: Platform) -> None:
        self._texts = texts
        self._platform = platform
        self._validators: dict[str, OAuthBearerValidator] = {}
        self._keepers: dict[str, TokenKeeper] = {}

    def validator(self, listener_name: str, *, may_block: bool) -> OAuthBearerValidator:
        """Of this node's listener. Fetches keys. Raises ConfigError."""
        validator = self._validators.get(listener_name)
        if validator is None:
            settings = ListenerSettings(self._texts, listener_name)
            validator = make_validator(settings, self._platform.clock, self._run_blocking, may_block=may_block)
            self._validators[listener_name] = validator
        return validator

    def keeper(self, listener_name: str) -> TokenKeeper:
        """For that listener of other nodes. Fetches a token, which blocks. Raises ConfigError."""
        keeper = self._keepers.get(listener_name)
        if keeper is None:
            settings = ListenerSettings(self._texts, listener_name)
            handler, jaas = (settings.of_mechanism(OAUTHBEARER, key) for key in (HANDLER_KEY, JAAS_KEY))
            provider = make_provider(settings, handler, jaas)
            keeper = TokenKeeper(provider, self._platform.clock, self._run_blocking, self._random)
            try:
                keeper.start()
            except FetchError as e:
                raise ConfigError(URL_KEY, None, "", message=f"{URL_KEY}: {e}") from e
            self._keepers[listener_name] = keeper
        return keeper

    async def close(self) -> None:
        for validator in self._validators.values():
            await validator.close()
        for keeper in self._keepers.values():
            await keeper.close()

    def _random(self) -> float:
        return int.from_bytes(self._platform.entropy(4), "big") / 2**32

    def _run_blocking(self, call: Callable[..., Any], *arguments: Any) -> BlockingResult:
        return self._platform.loop.run_in_executor(None, call, *arguments)
