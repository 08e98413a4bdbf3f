"""What differs from Apache Kafka on purpose, by fuzzer: each with its reason, and as narrow as can be.

An exchange is known where each place at which it differs is explained. Then the steps go on. Where the brokers' states are not the same
after it, a difference `is_end`: what follows in that seed is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import ErrorCode
from tests.peers.differential import admin_steps, consumer_group_steps, data_steps
from tests.peers.differential.data_steps import Damage
from tests.peers.differential.exchange import Exchange, Part
from tests.peers.differential.fuzzer import CLOSED


@dataclass(frozen=True, slots=True)
class Place:
    """Where an exchange differs: "topics[0].error_message", and what stands there; the whole answer at ""."""

    exchange: Exchange
    path: str
    theirs: Any
    ours: Any

    @property
    def field(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Difference:
    """`explains` says whether a place is this one and no other."""

    reason: str
    explains: Callable[[Place], bool]
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class Explained:
    """`known` has what explains the places of an exchange, `unknown` the places that nothing explains, theirs and ours by path."""

    known: Sequence[Difference]
    unknown: Mapping[str, tuple[Any, Any]]


def explain(exchange: Exchange, differences: Sequence[Difference]) -> Explained:
    """What is known of the places where it differs."""
    known, unknown = [], {}
    for path, (theirs, ours) in exchange.differing().items():
        place = Place(exchange, path, theirs, ours)
        found = next((difference for difference in differences if difference.explains(place)), None)
        if found is None:
            unknown[path] = theirs, ours
        else:
            known.append(found)
    return Explained(known, unknown)


def _is_answer(place: Place, step: type, field: str) -> bool:
    return place.exchange.part is Part.ANSWER and isinstance(place.exchange.step, step) and place.field == field


def _names_another_config(place: Place) -> bool:
    """Of several configs that are refused another one, by the same code."""
    step = place.exchange.step
    if place.field != "error_message" or place.theirs is None or place.ours is None:
        return False
    if isinstance(step, admin_steps.CreateTopics):
        return any(len(topic.configs) > 1 for topic in step.topics)
    return isinstance(step, admin_steps.AlterConfigs | admin_steps.IncrementalAlterConfigs) and any(
        len(configs) > 1 for _, _, configs in step.resources
    )


def _says_the_range(place: Place) -> bool:
    return place.field == "error_message" and "Not a number of type" in str(place.theirs) and str(place.ours).startswith(place.theirs)


OTHER_DEFAULTS = ("socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes")
CODE_AND_MESSAGE = {"error_code", "error_message"}
WORDS = {"error_message", "batch_index_error_message"}
NOT_HERE = ("share.version", "streams.version")

ADMIN = (
    Difference("of several configs that are refused each names another one: Kafka's order is that of hash maps", _names_another_config),
    Difference("what is no number: our message also says the range", _says_the_range),
    Difference(
        "of several features that cannot be changed each names another one: Kafka's order is that of a hash map",
        lambda place: _is_answer(place, admin_steps.UpdateFeatures, "error_message") and len(place.exchange.step.updates) > 1,
    ),
    Difference(
        "Kafka trips over an empty name, and answers UNKNOWN_SERVER_ERROR for all of them",
        lambda place: (
            place.exchange.part is Part.ANSWER
            and isinstance(place.exchange.step, admin_steps.DescribeTopicPartitions)
            and "" in place.exchange.step.topics
        ),
    ),
    Difference(
        "three defaults are others",
        lambda place: any(f".{key}." in place.path for key in OTHER_DEFAULTS),
    ),
    Difference(
        "words beside an unknown type of resource are our own",
        lambda place: _is_answer(place, admin_steps.DescribeConfigs, "error_message") and "Unexpected resource type" in str(place.ours),
    ),
    Difference(
        "a broker config that Kafka checks by a requirement of its own, other words",
        lambda place: place.field == "error_message" and str(place.theirs).startswith("requirement failed: ") and place.ours is not None,
    ),
    Difference(
        "words beside errors of Produce are our own",
        lambda place: isinstance(place.exchange.step, admin_steps.Produce) and place.field in WORDS,
    ),
    Difference(
        "configs that do not change while the broker runs are refused, so that nobody waits for what does not happen",
        lambda place: "This broker does not change these configs while it runs" in str(place.exchange.ours),
        is_end=True,
    ),
    Difference(
        "a broker's flush interval that no topic may have is refused; Kafka takes it",
        lambda place: "-1 for configuration flush.ms" in str(place.exchange.ours) and place.field in CODE_AND_MESSAGE,
        is_end=True,
    ),
    Difference(
        "features that are not here cannot be finalized",
        lambda place: (
            place.exchange.part is Part.ANSWER
            and isinstance(place.exchange.step, admin_steps.UpdateFeatures)
            and any(feature in NOT_HERE for feature, _, _ in place.exchange.step.updates)
        ),
    ),
)


def _has_damage(step: Any, damage: Damage) -> bool:
    return isinstance(step, data_steps.Produce) and any(batch.damage is damage for _, _, batches in step.parts for batch in batches)


DATA = (
    Difference("the codecs are not the same code", lambda place: place.field == "size_recompressed"),
    Difference(
        "Kafka's last batch may be cut at the limit; ours are whole", lambda place: place.field == "is_cut" and place.theirs is True
    ),
    Difference(
        "a codec that does not exist is not UNKNOWN_SERVER_ERROR",
        lambda place: place.field == "error_code" and place.theirs == -1 and _has_damage(place.exchange.step, Damage.CODEC),
    ),
    Difference(
        "a broken length or magic is its partition's error alone; Kafka refuses the whole request, before it looks for topics",
        lambda place: (
            place.exchange.part is not Part.LOG
            and any(_has_damage(place.exchange.step, damage) for damage in (Damage.LENGTH, Damage.MAGIC))
        ),
        is_end=True,
    ),
    Difference(
        "a producer epoch of -1 where records are rewritten: Kafka's builder trips",
        lambda place: (
            isinstance(place.exchange.step, data_steps.Produce)
            and any(
                batch.producer is not None and batch.producer[1] == -1 for _, _, batches in place.exchange.step.parts for batch in batches
            )
            and (place.theirs in (CLOSED, -1))
        ),
        is_end=True,
    ),
    Difference(
        "a fetch session that began in v12, with a divergence to tell in an older version: UNSUPPORTED_VERSION, here the connection's end",
        lambda place: isinstance(place.exchange.step, data_steps.Fetch) and place.exchange.step.version < 12 and place.ours == CLOSED,
        is_end=True,
    ),
    Difference(
        "acks that do not exist are refused before the batches are looked at",
        lambda place: place.field == "error_code" and place.ours == 21 and place.exchange.step.acks not in (-1, 0, 1),
    ),
    Difference(
        "an isolation level that does not exist is refused though nothing is read",
        lambda place: isinstance(place.exchange.step, data_steps.Fetch) and place.exchange.step.isolation_level == 5,
        is_end=True,
    ),
    Difference(
        "with READ_COMMITTED the list of aborted transactions is never null, also where the limit lets no batch through",
        lambda place: place.field == "aborted_transactions" and place.theirs is None and place.ours == [],
    ),
    Difference(
        "beside INVALID_RECORD the log start offset is always told",
        lambda place: isinstance(place.exchange.step, data_steps.Produce) and place.field == "log_start_offset" and place.theirs == -1,
    ),
)


def _is_described_after(place: Place, step: type) -> bool:
    return place.exchange.part is Part.DESCRIPTION and isinstance(place.exchange.step, step)


def _is_assigned_as_if_all_read_the_same(place: Place) -> bool:
    """Kafka takes the group's subscription type of before the heartbeat where that bumps no epoch (GroupMetadataManager,
    group.subscriptionType()). So the range assignor splits what the first member reads among all of them."""
    if not _is_described_after(place, consumer_group_steps.Beat) or "target_assignment" not in place.path:
        return False
    members = sorted(place.exchange.theirs["group"]["groups"][0]["members"], key=_order_of_range_assignor)
    if len({repr((member["subscribed_topic_names"], member["subscribed_topic_regex"])) for member in members}) == 1:
        return False
    targets = [
        {topic["topic_name"]: topic["partitions"] for topic in member["target_assignment"]["topic_partitions"]} for member in members
    ]
    return all(_is_split_evenly([target.get(topic, []) for target in targets]) for topic in {name for each in targets for name in each})


def _order_of_range_assignor(member: Mapping[str, Any]) -> tuple[bool, str]:
    return member["instance_id"] is None, member["instance_id"] or member["member_id"]


def _is_split_evenly(shares: Sequence[list[int]]) -> bool:
    """Whether the shares are ranges of as many partitions, give or take one, the larger ones first."""
    partitions = [partition for share in shares for partition in share]
    quota, extra_count = divmod(len(partitions), len(shares))
    sizes = [quota + (index < extra_count) for index in range(len(shares))]
    return partitions == list(range(len(partitions))) and [len(share) for share in shares] == sizes


CONSUMER_GROUPS = (
    Difference(
        "a member whose regular expression is not resolved yet, or that reads nothing, does not bump the epoch when it comes: until the "
        "next epoch, for ten seconds or more, Kafka assigns as if all members still read the same, and leaves partitions to members that "
        "do not read them, or to none",
        _is_assigned_as_if_all_read_the_same,
        is_end=True,
    ),
    Difference(
        "where all members speak the classic protocol a new epoch has them join again; Kafka waits until somebody joins, and what a member "
        "that left had is read by nobody",
        lambda place: (
            place.exchange.part is Part.ANSWER
            and isinstance(place.exchange.step, consumer_group_steps.ClassicBeat)
            and place.exchange.ours["is_alone"]
            and (place.field, place.theirs, place.ours) == ("error_code", ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        ),
    ),
    Difference(
        "the patterns are RE2's in both, the words about one that is none are their library's",
        lambda place: (
            place.field == "error_message"
            and all("is not a valid regular expression: " in str(words) for words in (place.theirs, place.ours))
        ),
    ),
)

DIFFERENCES: Mapping[str, Sequence[Difference]] = {"consumer-groups": CONSUMER_GROUPS, "admin": ADMIN, "data": DATA}
"""By the fuzzer's name."""
