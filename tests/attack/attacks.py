"""The list of attacks, in the order of a campaign."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.attack import (
    connection_attacks,
    group_attacks,
    memory_attacks,
    mutation_attacks,
    request_attacks,
    stranger_attacks,
    wide_attacks,
)
from tests.attack.attacker import Attacker


@dataclass(frozen=True, slots=True)
class Attack:
    """`settings` are the broker's for this attack alone. `kept_mb`: what the broker may keep of it by right, groups for instance, in a
    full campaign."""

    name: str
    run: Callable[[Attacker], None]
    settings: Mapping[str, str] = field(default_factory=dict)
    kept_mb: float = 0.0
    is_quick: bool = False
    """Part of the short campaign that `make test` runs."""

    @property
    def description(self) -> str:
        return (self.run.__doc__ or "").split("\n\n")[0]


ATTACKS = (
    Attack("half-frames", memory_attacks.send_half_frames, is_quick=True),
    Attack("bombs", memory_attacks.send_bombs, is_quick=True),
    Attack("unfinished-frames", memory_attacks.send_unfinished_frames, settings=memory_attacks.SMALL_MEMORY),
    Attack("large-produces", memory_attacks.send_large_produces),
    Attack("unread-answers", memory_attacks.read_no_answers, is_quick=True),
    Attack("empty-records", memory_attacks.send_empty_records),
    Attack("describe-configs", request_attacks.describe_one_many_times, is_quick=True),
    Attack("long-keys", request_attacks.find_long_keys, is_quick=True),
    Attack("many-topics", request_attacks.ask_for_many_topics),
    Attack("wide-fetches", request_attacks.fetch_many_partitions),
    Attack("sessions", request_attacks.open_many_sessions),
    Attack("wide-produces", request_attacks.produce_to_many_partitions),
    Attack("create-delete", request_attacks.create_and_delete),
    Attack("commits", request_attacks.commit_megabytes, kept_mb=40),
    Attack("groups", group_attacks.make_many_groups, kept_mb=300),
    Attack("new-members", group_attacks.join_new_groups, kept_mb=60),
    Attack("pipelined-leaves", group_attacks.leave_behind_parked_joins, is_quick=True),
    Attack("connections", connection_attacks.flood_connections, settings=connection_attacks.FLOOD_SETTINGS),
    Attack("other-protocols", connection_attacks.speak_other_protocols, is_quick=True),
    Attack("resets", connection_attacks.reset_connections, is_quick=True),
    Attack("dribble", connection_attacks.dribble, is_quick=True),
    Attack("half-open", connection_attacks.hold_half_open, is_quick=True),
    Attack("wide-arrays", wide_attacks.widen_every_array),
    Attack("mutations", mutation_attacks.send_mutated_requests, kept_mb=40, is_quick=True),
)

STRANGERS = (
    Attack("handshake-storm", stranger_attacks.storm_with_handshakes),
    Attack("limited-storm", stranger_attacks.storm_above_the_rate, settings=stranger_attacks.LIMITED),
    Attack("login-storm", stranger_attacks.storm_with_logins, is_quick=True),
    Attack("token-flood", stranger_attacks.flood_with_tokens, is_quick=True),
    Attack("mutated-logins", stranger_attacks.mutate_logins, is_quick=True),
    Attack("half-logins", stranger_attacks.hold_half_handshakes, is_quick=True),
    Attack("slow-logins", stranger_attacks.dribble_logins),
    Attack("huge-logins", stranger_attacks.send_huge_frames, settings=memory_attacks.SMALL_MEMORY),
    Attack("cut-records", stranger_attacks.cut_records, is_quick=True),
    Attack("connections", stranger_attacks.flood_connections, settings=connection_attacks.FLOOD_SETTINGS),
    Attack("half-frames", memory_attacks.send_half_frames),
    Attack("unfinished-frames", memory_attacks.send_unfinished_frames, settings=memory_attacks.SMALL_MEMORY),
    Attack("other-protocols", connection_attacks.speak_other_protocols, is_quick=True),
    Attack("resets", connection_attacks.reset_connections, is_quick=True),
    Attack("half-open", connection_attacks.hold_half_open),
    Attack("mutations", mutation_attacks.send_mutated_requests, is_quick=True),
)
"""Before authentication, at a broker with a Guard. The second half are those of above, from connections that are not logged in."""
