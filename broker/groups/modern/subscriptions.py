"""What the members of a group read and want once one of them has changed: computed beside the group, which changes in replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from broker.groups.modern.group import ConsumerGroup
from broker.groups.modern.member import ConsumerGroupMember


def subscriptions_after(
    group: ConsumerGroup, member: ConsumerGroupMember, changed: ConsumerGroupMember
) -> tuple[Counter[str], Counter[str]]:
    """How many members subscribe to each name and to each expression once the member is changed."""
    names, subscribers = group.name_counts, group.regex_subscribers
    is_known = member.member_id in group.members or group.find_static_member(changed.instance_id) is not None
    before = member.subscribed_topic_names if is_known else frozenset()
    if changed.subscribed_topic_names != before:
        names = Counter(names)
        names.subtract(before)
        names.update(changed.subscribed_topic_names)
        names = +names
    regex_before = member.subscribed_topic_regex if is_known else ""
    if changed.subscribed_topic_regex != regex_before:
        subscribers = Counter(subscribers)
        if regex_before:
            subscribers[regex_before] -= 1
        if changed.subscribed_topic_regex:
            subscribers[changed.subscribed_topic_regex] += 1
        subscribers = +subscribers
    return names, subscribers


def expression_topics(group: ConsumerGroup, subscribers: Collection[str]) -> set[str]:
    """The topics of the expressions that still have subscribers."""
    return {topic for regex, resolved in group.regular_expressions.items() if regex in subscribers for topic in resolved.topics}


def is_homogeneous(group: ConsumerGroup, member: ConsumerGroupMember, changed: ConsumerGroupMember) -> bool:
    """Whether all members read the same: the same names and no expression, or one expression and no names."""
    names, subscribers = subscriptions_after(group, member, changed)
    is_new = changed.member_id not in group.members and group.find_static_member(changed.instance_id) is None
    member_count = len(group.members) + is_new
    if not subscribers:
        return all(count == member_count for count in names.values())
    return next(iter(subscribers.values())) == member_count and not names


def preferred_assignor(group: ConsumerGroup, member: ConsumerGroupMember, changed: ConsumerGroupMember) -> str | None:
    """The one that most members ask for; None if none does."""
    counts = Counter(group.assignor_counts)
    if member.server_assignor is not None and member.member_id in group.members:
        counts[member.server_assignor] -= 1
    if changed.server_assignor is not None:
        counts[changed.server_assignor] += 1
    return max(+counts, key=lambda name: counts[name], default=None)
