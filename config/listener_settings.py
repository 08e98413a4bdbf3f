"""ListenerSettings: the properties of one listener. `listener.name.<listener>.<property>` counts before `<property>`.

What belongs to a SASL mechanism of a listener has its name, too: `listener.name.<listener>.<mechanism>.<property>`.

Source: AbstractConfig.valuesWithPrefixOverride, ListenerName.configPrefix, saslMechanismConfigPrefix.
"""

from __future__ import annotations

from collections.abc import Mapping

from config.listener_properties import LISTENER_PROPERTIES, MECHANISM_PROPERTIES, PREFIX
from config.properties import ConfigError, Value
from config.server import SERVER_PROPERTIES


class ListenerSettings:
    """`texts` are the node's properties as texts. Values are parsed when they are asked for."""

    def __init__(self, texts: Mapping[str, str], listener_name: str) -> None:
        self._texts = texts
        self.listener_name = listener_name
        self.prefix = f"{PREFIX}{listener_name.lower()}."

    def key(self, name: str) -> str:
        """The name under which the property `name` is set for this listener."""
        own = self.prefix + name
        return own if own in self._texts else name

    def is_own(self, name: str) -> bool:
        """Whether the property is set for this listener alone."""
        return self.prefix + name in self._texts

    def value(self, name: str) -> Value:
        """The value of a Kafka property for this listener, else its default. Raises ConfigError, which names the key that is wrong."""
        assert name in LISTENER_PROPERTIES, f"{name} is no property of listeners"
        known, key = SERVER_PROPERTIES[name], self.key(name)
        text = self._texts.get(key)
        return known.default if text is None else _parse(known.name, key, text)

    def of_mechanism(self, mechanism: str, name: str) -> tuple[str, str | None]:
        """Returns the key of a property of a SASL mechanism of this listener, and its text; None if it is not set."""
        assert name in MECHANISM_PROPERTIES, f"{name} is no property of mechanisms"
        key = f"{self.prefix}{mechanism.lower()}.{name}"
        return key, self._texts.get(key)

    def value_of_mechanism(self, mechanism: str, name: str) -> Value:
        """The value of a property that a mechanism may have of its own, else the listener's."""
        key, text = self.of_mechanism(mechanism, name)
        return self.value(name) if text is None else _parse(name, key, text)


def _parse(name: str, key: str, text: str) -> Value:
    try:
        return SERVER_PROPERTIES[name].parse(text)
    except ConfigError as e:
        raise ConfigError(key, e.value, e.why) from e
