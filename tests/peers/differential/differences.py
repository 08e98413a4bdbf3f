"""What differs from Apache Kafka on purpose, by fuzzer: each with its reason, and as narrow as can be.

An exchange is known where each place at which it differs is explained. Then the steps go on. Where the brokers' states are not the same
after it, a difference `is_end`: what follows in that seed is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.peers.differential import admin_steps
from tests.peers.differential.exchange import Exchange, Part


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
NOT_HERE = ("transaction.version", "share.version", "streams.version")

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
        "a number of threads that has no effect here may be any",
        lambda place: "Dynamic thread count update validation failed" in str(place.exchange.theirs) and place.field in CODE_AND_MESSAGE,
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

DIFFERENCES: Mapping[str, Sequence[Difference]] = {"admin": ADMIN}
"""By the fuzzer's name."""
