"""The configs of topics, brokers and other resources with the sources of their values, for DescribeConfigs and CreateTopics.

Source: kafka.server.ConfigHelper, KafkaConfigSchema, DynamicBrokerConfig.brokerConfigSynonyms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from broker.metadata.cluster_state import RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, ClusterState
from broker.metadata.topic_defaults import effective_overrides
from config.properties import ConfigError, Property
from config.server import DYNAMIC_ONLY_PROPERTIES, SERVER_PROPERTIES, ServerConfig
from config.topic import TOPIC_PROPERTIES, log_config

UNKNOWN_TYPE = 0
_LISTENER_CONFIG = re.compile(r"listener\.name\.[^.]*\.(.*)")


class ConfigSource(IntEnum):
    """The source of a value, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """One source of a config's value; the first of several wins."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One config as a client sees it. A sensitive value is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    type: int
    synonyms: tuple[Synonym, ...]
    describe: Callable[[str], str] | None = None
    """Tells what the config does, where that is neither a topic's nor a broker's."""

    def documentation(self) -> str:
        """The description of the config; empty for an unknown one. Reading it loads the texts."""
        if self.describe is not None:
            return self.describe(self.name)
        from config.docs import documentation

        known = TOPIC_PROPERTIES.get(self.name) or SERVER_PROPERTIES.get(self.name)
        return "" if known is None else documentation(known.name)


class ConfigDescriber:
    """Describes configs from one broker's point of view."""

    def __init__(self, state: ClusterState, config: ServerConfig, node_id: int) -> None:
        self._state = state
        self._config = config
        self._node_id = node_id
        self._creation_basis: tuple[object, ...] | None = None
        self._creation_entries: list[ConfigEntry] = []
        self._static = dict(config.texts)
        for name, twin in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name in config.texts:
                # Kafka's KafkaConfig sets each from the other.
                self._static.setdefault(twin, config.texts[name])

    def topic_entries(self, topic: str) -> list[ConfigEntry]:
        """Every config of `topic`, as DescribeConfigs returns them."""
        overrides = effective_overrides(self._state, self._node_id, topic)
        return self._topic_entries(self._state.topic_overrides(topic), overrides, self._broker_synonyms)

    def creation_entries(self, topic: str, own: Mapping[str, str]) -> list[ConfigEntry]:
        """Every config, by name, that `topic` will have once it is created with `own`, as CreateTopics returns them.

        Unlike in DescribeConfigs, log.retention.hours counts as a source of retention.ms here. The list is read-only: topics created with
        the same configs share it.
        """
        of_brokers = (tuple(self._state.broker_overrides(name).items()) for name in ("", str(self._node_id)))
        basis = (tuple(own.items()), *of_brokers)
        if basis != self._creation_basis:
            overrides = effective_overrides(self._state, self._node_id, topic) | dict(own)
            entries = self._topic_entries(own, overrides, self._all_broker_synonyms)
            # The request's values are answered as they were sent: KafkaConfigSchema does not parse them.
            self._creation_entries = [entry._replace(value=own.get(entry.name, entry.value)) for entry in entries]
            self._creation_entries.sort(key=lambda entry: entry.name)
            self._creation_basis = basis
        return self._creation_entries

    def broker_entries(self) -> Iterator[ConfigEntry]:
        """Yields every config of this broker, and the unknown ones that are set on it. A generator, because all of them take
        milliseconds."""
        own = dict(self._state.broker_overrides(str(self._node_id)))
        for known in SERVER_PROPERTIES.values():
            if not known.is_internal or self._config.is_set(known.name) or known.name in own:
                yield self._broker_entry(known)
        for name in sorted({*self._static, *own, *self._state.broker_overrides("")} - SERVER_PROPERTIES.keys()):
            yield self._foreign_entry(name)

    def default_broker_entries(self) -> list[ConfigEntry]:
        """Returns the configs that are set as the default of all brokers."""
        entries = []
        for name, text in self._state.broker_overrides("").items():
            listener_config = _LISTENER_CONFIG.fullmatch(name)
            known = _find_broker_property(listener_config[1] if listener_config else name)
            value = None if known is None or known.is_sensitive else text
            synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
            if known is not None and listener_config:
                source = ConfigSource.DYNAMIC_DEFAULT_BROKER
                entries.append(ConfigEntry(name, value, source, known.is_sensitive, True, known.type, synonyms))
            elif known is not None:
                entries.append(_entry(known, value, synonyms, is_read_only=known.is_read_only))
            else:
                entries.append(ConfigEntry(name, None, ConfigSource.DYNAMIC_DEFAULT_BROKER, True, True, UNKNOWN_TYPE, synonyms))
        return entries

    def group_entries(self, group: str) -> Iterator[ConfigEntry]:
        """Yields every config of `group`, whether or not the group exists."""
        from config.group import GROUP_PROPERTIES, default_of, group_documentation

        own = self._state.overrides(RESOURCE_GROUP, group)
        for known in GROUP_PROPERTIES.values():
            defaults = self._broker_synonyms(known.synonyms[0]) if known.synonyms else ()
            if known.name in own:
                value = _normalized(known, own[known.name])
                synonyms = (Synonym(known.name, value, ConfigSource.GROUP), *defaults)
            else:
                value = known.format(default_of(self._config, known.name))
                synonyms = defaults
            if not known.synonyms:
                synonyms = (*synonyms, Synonym(known.name, known.format(known.default), ConfigSource.DEFAULT))
            yield _entry(known, value, synonyms, is_read_only=False)._replace(describe=group_documentation)

    def client_metrics_entries(self, subscription: str) -> Iterator[ConfigEntry]:
        """Yields every config of the client metrics subscription, whether or not it exists."""
        from config.client_metrics import CLIENT_METRICS_DOCUMENTATION, CLIENT_METRICS_PROPERTIES

        own = self._state.overrides(RESOURCE_CLIENT_METRICS, subscription)
        for known in CLIENT_METRICS_PROPERTIES.values():
            value = _normalized(known, own[known.name]) if known.name in own else known.format(known.default)
            synonyms = (Synonym(known.name, value, ConfigSource.CLIENT_METRICS),) if known.name in own else ()
            yield _entry(known, value, synonyms, is_read_only=False)._replace(describe=CLIENT_METRICS_DOCUMENTATION.__getitem__)

    def logger_entries(self) -> Iterator[ConfigEntry]:
        """Yields the level of every logger of this broker."""
        from broker.observability.logger_levels import levels

        for name, level in levels():
            yield ConfigEntry(name, level, ConfigSource.BROKER_LOGGER, False, False, UNKNOWN_TYPE, (), lambda name: "")

    def _topic_entries(
        self, own: Mapping[str, str], overrides: Mapping[str, str], synonyms_of: Callable[[str], tuple[Synonym, ...]]
    ) -> list[ConfigEntry]:
        effective = log_config(self._config.topic_defaults, overrides)
        entries = []
        for known in TOPIC_PROPERTIES.values():
            if known.is_internal and known.name not in own:
                continue
            value = known.format(effective.value_of(known.name))
            synonyms = synonyms_of(known.synonyms[0]) if known.synonyms else ()
            if known.name in own:
                synonyms = (Synonym(known.name, value, ConfigSource.TOPIC), *synonyms)
            entries.append(_entry(known, value, synonyms, is_read_only=False))
        return entries

    def _broker_entry(self, known: Property) -> ConfigEntry:
        synonyms = self._broker_synonyms(known.name)
        if synonyms and synonyms[0].name == known.name:
            value = _normalized(known, synonyms[0].value)
        else:
            value = known.format(self._config.value_of(known.name))
        return _entry(known, value, synonyms, is_read_only=known.is_read_only)

    def _foreign_entry(self, name: str) -> ConfigEntry:
        """A config that is not a property of server.properties: one that can only be set dynamically, one of a listener
        (listener.name.{name}.{property}), one of a plug-in, or a mistake."""
        found = [(texts[name], source) for texts, source in self._places() if name in texts]
        _, source = found[0]
        known = DYNAMIC_ONLY_PROPERTIES.get(name)
        if known is not None:
            synonyms = tuple(Synonym(name, text, place) for text, place in found)
            return _entry(known, synonyms[0].value, synonyms, is_read_only=known.is_read_only)
        listener_config = _LISTENER_CONFIG.fullmatch(name)
        known = SERVER_PROPERTIES.get(listener_config[1]) if listener_config else None
        if known is None:
            # A config of unknown type may hold a secret.
            synonyms = tuple(Synonym(name, None, place) for _, place in found)
            return ConfigEntry(name, None, source, True, True, UNKNOWN_TYPE, synonyms)
        shown = [Synonym(name, None if known.is_sensitive else text, place) for text, place in found]
        synonyms = (*shown, *self._synonyms_among((known.name,)))
        return ConfigEntry(name, _normalized(known, shown[0].value), source, known.is_sensitive, True, known.type, synonyms)

    def _broker_synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Returns every source that sets the broker config `name` or a synonym of it; the source that wins comes first.

        As in Kafka, sources before the first one that sets `name` itself are left out, so log.retention.hours alone gives retention.ms no
        synonyms.
        """
        found = self._all_broker_synonyms(name)
        first = next((place for place, synonym in enumerate(found) if synonym.name == name), len(found))
        return found[first:]

    def _all_broker_synonyms(self, name: str) -> tuple[Synonym, ...]:
        return self._synonyms_among(SERVER_PROPERTIES[name].synonyms or (name,))

    def _synonyms_among(self, names: tuple[str, ...]) -> tuple[Synonym, ...]:
        found: list[Synonym] = []
        for texts, source in self._places():
            found.extend(Synonym(each, _shown(each, texts[each]), source) for each in names if each in texts)
        for each in names:
            known = SERVER_PROPERTIES[each]
            if known.default_text is not None:
                found.append(Synonym(each, known.format(known.default), ConfigSource.DEFAULT))
        return tuple(found)

    def _places(self) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
        """The sources of broker configs; the one that wins comes first."""
        return (
            (self._state.broker_overrides(str(self._node_id)), ConfigSource.DYNAMIC_BROKER),
            (self._state.broker_overrides(""), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._static, ConfigSource.STATIC_BROKER),
        )


def is_secret_of_broker(name: str) -> bool:
    """Whether the value of a broker config may not be told: a password, also a listener's, or a config of unknown type, which may hold one.

    Source: KafkaConfigSchema.isSensitive."""
    listener_config = _LISTENER_CONFIG.fullmatch(name)
    known = _find_broker_property(listener_config[1] if listener_config else name)
    return known is None or known.is_sensitive


def _find_broker_property(name: str) -> Property | None:
    return SERVER_PROPERTIES.get(name) or DYNAMIC_ONLY_PROPERTIES.get(name)


def _normalized(known: Property, text: str | None) -> str | None:
    """Returns `text` in Kafka's normal form: ` TRUE` becomes `true`. Synonyms are returned as they were written."""
    if text is None:
        return None
    try:
        return known.format(known.parse(text))
    except ConfigError:
        return text  # stored by another version


def _shown(name: str, text: str) -> str | None:
    return None if SERVER_PROPERTIES[name].is_sensitive else text


def _entry(known: Property, value: str | None, synonyms: tuple[Synonym, ...], *, is_read_only: bool) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(known.name, value, source, known.is_sensitive, is_read_only, known.type, synonyms)
