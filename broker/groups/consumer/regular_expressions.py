"""Resolves the regular expressions by which KIP-848 groups subscribe to topics, and refreshes them as topics are created and deleted.

All expressions of a group are resolved together, so that new topics cost one rebalance, and at most every REFRESH_MIN_INTERVAL_MS. A
heartbeat starts that when an expression is new, when topics were created, and every `group.consumer.regex.refresh.interval.ms`. A LoopJob
resolves one group after another, because a malicious expression takes 5 ms for each topic with the longest possible name.
Only topics count that the client may describe whose request starts that: other members may get more, or fewer, as in Kafka.
The matching topics are stored. If they changed, the group's epoch is bumped.

Source: GroupMetadataManager.maybeUpdateRegularExpressions, refreshRegularExpressions and handleRegularExpressionsResult.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.groups.consumer.group import METADATA_REFRESH_INTERVAL_MS, ConsumerGroup, ResolvedRegularExpression
from broker.groups.consumer.records import group_epoch_record, regular_expression_record
from broker.groups.consumer.subscriptions import MemberUpdate, expressions_after
from broker.loop.job import LoopJob
from broker.observability.log_fields import Fields
from config.safe_patterns import PatternError, SafePattern
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.groups.consumer.result import RecordWriter
    from broker.groups.consumer.store import ConsumerGroupStore
    from broker.groups.consumer.topics import GroupTopics
    from broker.groups.group_config import GroupConfig
    from broker.loop.clock import Clock
    from broker.observability.limited_log import LimitedLog

REFRESH_MIN_INTERVAL_MS = 10_000
"""REGEX_BATCH_REFRESH_MIN_INTERVAL_MS."""


class _Due(NamedTuple):
    """Expressions of a group, and which topics the client whose request has them resolved may describe; None: all."""

    expressions: Sequence[str]
    may_describe: Callable[[str], bool] | None


class RegularExpressions:
    """The expressions of the groups of one shard. `writer` writes the resolved topics."""

    def __init__(
        self,
        store: ConsumerGroupStore,
        topics: GroupTopics,
        clock: Clock,
        config: GroupConfig,
        writer: RecordWriter,
        limited_log: LimitedLog,
    ) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._config = config
        self._writer = writer
        self._limited_log = limited_log
        self._due: dict[str, _Due] = {}  # by group; the first one is being resolved
        self._job = LoopJob(clock, self._resolve_due)

    def on_unloaded(self) -> None:
        self._due.clear()
        self._job.stop()

    def maybe_refresh(self, update: MemberUpdate) -> None:
        """Begin to resolve the group's expressions if due. INVALID_REGULAR_EXPRESSION if the member's new expression is malformed."""
        group, regex = update.group, update.after.subscribed_topic_regex
        is_new = bool(regex) and regex != update.before.subscribed_topic_regex and regex not in group.regex_subscribers
        if is_new:
            _check(regex or "")
        elif not group.regex_subscribers:
            return
        if group.group_id not in self._due and self._is_due(group, expressions := expressions_after(update), is_new=is_new):
            self._due[group.group_id] = _Due(list(expressions), update.client.may_describe)
            self._job.resume()

    def _is_due(self, group: ConsumerGroup, expressions: Mapping[str, int], *, is_new: bool) -> bool:
        if not expressions:
            return False
        resolved = group.regular_expressions.values()
        if not resolved:
            return True
        last_ms = max(expression.timestamp_ms for expression in resolved)
        now_ms = self._clock.now_ms()
        if last_ms <= now_ms <= last_ms + REFRESH_MIN_INTERVAL_MS:
            return False
        return (
            now_ms < last_ms  # the clock was set back, or another coordinator's clock is ahead
            or is_new
            or len(expressions) != len(resolved)
            or max(expression.version for expression in resolved) < self._topics.last_creation_version
            or now_ms > last_ms + self._config.regex_refresh_interval_ms
        )

    def _resolve_due(self) -> Generator[None, None, None]:
        while self._due:
            group_id, due = next(iter(self._due.items()))
            try:
                resolved = yield from self._resolve(due)
            finally:
                self._due.pop(group_id, None)
            self._store_resolved(group_id, resolved)

    def _resolve(self, due: _Due) -> Generator[None, None, dict[str, ResolvedRegularExpression]]:
        """Match the expressions with the present topics that the client may describe. An expression that does not compile here, but was
        accepted by another coordinator, keeps its topics."""
        names, version, timestamp_ms = list(self._topics.names()), self._topics.version, self._clock.now_ms()
        resolved = {}
        for regex in due.expressions:
            try:
                pattern = SafePattern(regex, is_ascii=True)
            except PatternError as e:
                self._limited_log.warning("unserved regular expression", "a group's regular expression is not served: %s", e)
                continue
            yield
            found = set()
            for name in names:
                if pattern.matches(name) and (due.may_describe is None or due.may_describe(name)):
                    found.add(name)
                yield
            resolved[regex] = ResolvedRegularExpression(frozenset(found), version, timestamp_ms)
        return resolved

    def _store_resolved(self, group_id: str, resolved: Mapping[str, ResolvedRegularExpression]) -> None:
        group = self._store.groups.get(group_id)
        if group is None:
            return
        expressions = dict(group.regular_expressions)
        records: list[CoordinatorRecord] = []
        has_changed = False
        for regex, expression in resolved.items():
            if regex not in group.regex_subscribers:
                continue
            before = expressions.get(regex)
            has_changed |= expression.topics != (frozenset() if before is None else before.topics)
            expressions[regex] = expression
            records.append(regular_expression_record(group_id, regex, expression))
        if not records:
            return
        metadata_hash = self._topics.hash_of(group.name_counts.keys() | _topics_of(expressions.values()))
        if has_changed or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            records.append(group_epoch_record(group_id, epoch, metadata_hash))
            group.refresh_later(self._clock.now_ms() + METADATA_REFRESH_INTERVAL_MS, epoch)
            facts = Fields(group=group_id, epoch=epoch, topics=len(_topics_of(expressions.values())))
            self._limited_log.info("group matched topics", "group matched topics %s", facts)
        self._writer.run(CoordinatorResult(records, self._warn_not_stored))

    def _warn_not_stored(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._limited_log.warning("unstored topics", "the topics that a group reads could not be stored: %s", error.name)


def _check(regex: str) -> None:
    try:
        SafePattern(regex, is_ascii=True)
    except PatternError as e:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {e}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from e


def _topics_of(expressions: Iterable[ResolvedRegularExpression]) -> set[str]:
    return {topic for expression in expressions for topic in expression.topics}
