"""Computes a group's subscriptions after a change of a member. The group itself changes later, in replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from broker.coordination.records import CoordinatorRecord
from broker.groups.client_info import ClientInfo
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember


class MemberUpdate(NamedTuple):
    """The change of one member by one request of `client`. The steps of the request add to `records`."""

    group: ConsumerGroup
    before: ConsumerGroupMember
    after: ConsumerGroupMember
    records: list[CoordinatorRecord]
    client: ClientInfo

    @property
    def is_known(self) -> bool:
        """Whether the group has the member already, or the static member that it replaces."""
        return self.before.member_id in self.group.members or self.group.find_static_member(self.after.instance_id) is not None

    @property
    def member_count(self) -> int:
        """The group's member count after the change."""
        is_new = self.after.member_id not in self.group.members and self.group.find_static_member(self.after.instance_id) is None
        return len(self.group.members) + is_new


def names_after(update: MemberUpdate) -> Counter[str]:
    """How many members subscribe to each name."""
    before = update.before.subscribed_topic_names if update.is_known else frozenset()
    return _moved(update.group.name_counts, before, update.after.subscribed_topic_names)


def expressions_after(update: MemberUpdate) -> Counter[str]:
    """How many members subscribe to each expression."""
    before = update.before.subscribed_topic_regex if update.is_known else ""
    after = update.after.subscribed_topic_regex
    return _moved(update.group.regex_subscribers, {before} if before else (), {after} if after else ())


def _moved(counts: Counter[str], before: Collection[str], after: Collection[str]) -> Counter[str]:
    """The counts after one member's change from `before` to `after`. The same object if they are equal."""
    if before == after or not (before or after):
        return counts
    counts = Counter(counts)
    counts.subtract(before)
    counts.update(after)
    return +counts


def expression_topics(group: ConsumerGroup, subscribers: Collection[str]) -> set[str]:
    """The topics of those expressions in `subscribers` that are resolved."""
    return {topic for regex, resolved in group.regular_expressions.items() if regex in subscribers for topic in resolved.topics}


def topics_after(update: MemberUpdate) -> set[str]:
    """The names of all topics that the group reads."""
    return names_after(update).keys() | expression_topics(update.group, expressions_after(update))


def left_expressions(group: ConsumerGroup, members: Iterable[ConsumerGroupMember]) -> list[str]:
    """The expressions that have no subscriber without these members."""
    left = Counter(member.subscribed_topic_regex for member in members if member.subscribed_topic_regex)
    return [regex for regex, count in left.items() if group.regex_subscribers[regex] == count]


def is_homogeneous(update: MemberUpdate) -> bool:
    """Whether all members have the same subscription: the same names and no expression, or one expression and no names."""
    names, subscribers = names_after(update), expressions_after(update)
    if not subscribers:
        return all(count == update.member_count for count in names.values())
    return next(iter(subscribers.values())) == update.member_count and not names


def preferred_assignor(update: MemberUpdate) -> str | None:
    """The assignor that most members ask for. None if no member asks for one."""
    counts = Counter(update.group.assignor_counts)
    if update.before.server_assignor is not None and update.is_known:
        counts[update.before.server_assignor] -= 1
    if update.after.server_assignor is not None:
        counts[update.after.server_assignor] += 1
    return most_wanted(+counts)


def most_wanted(assignors: Mapping[str, int]) -> str | None:
    """The assignor with the most votes. None without votes. If `uniform` and `range` have equally many it is `uniform`: Kafka takes the
    first one in its hash map, not in group.consumer.assignors."""
    return max(assignors, key=lambda name: (assignors[name], name), default=None)
