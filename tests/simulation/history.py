"""What the clients of one simulated run did and saw, and whether a broker may have done that.

Operations are kept in tests.support.history_checker's format. Promises that it does not know are checked here: high watermarks and
committed offsets that go back, partitions with two owners, commits of an old generation, topics that were acknowledged and are gone.

A power cut may lose what was not flushed: the ends of the logs of topics without flush.messages=1. `is_durable` tells which keys must
survive it all the same; a killed process loses nothing that was acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.support.history_checker import Position, check

Key = tuple[str, int]  # topic and partition

SKIPS = frozenset({"poll-skip", "int-poll-skip"})
"""Anomalies whose evidence names a consumer, what it read from, and the offsets before and after what it skipped."""


@dataclass(slots=True)
class Commit:
    """An offset that a group member asked to commit; `returned_s` is None while it is not acknowledged."""

    key: Key
    offset: int
    generation: int
    invoked_s: float
    returned_s: float | None = None


@dataclass(slots=True)
class History:
    """Filled by the clients, each entry in the order of its completion."""

    operations: list[dict[str, Any]] = field(default_factory=list)
    durable_topics: set[str] = field(default_factory=set)  # asked for by name only, never walked
    lossy_topics: set[str] = field(default_factory=set)  # as durable_topics: leaders are elected that lack committed records
    are_commits_durable: bool = False
    power_cuts_s: list[float] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    generations_s: list[tuple[float, int]] = field(default_factory=list)  # when a member got its share in one, which a crash cannot undo
    findings: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    high_watermarks: dict[tuple[str, Key], tuple[float, int]] = field(default_factory=dict)
    owners: dict[tuple[int, Key], str] = field(default_factory=dict)
    segment_starts: dict[Key, list[int]] = field(default_factory=dict)

    def is_durable(self, key: Key) -> bool:
        return key[0] in self.durable_topics

    def lost_power_since(self, when_s: float) -> bool:
        return any(cut_s >= when_s for cut_s in self.power_cuts_s)

    def add(self, process: str, kind: str, outcome: str, steps: list[Any], invoked_s: float, returned_s: float, **more: Any) -> None:
        self.operations.append({"p": process, "f": kind, "t": outcome, "m": steps, "inv": invoked_s, "ret": returned_s, **more})

    def find(self, anomaly: str, evidence: Any) -> None:
        self.findings[anomaly].append(evidence)

    # -- checks as the run goes ------------------------------------------------------------------------------------

    def saw_high_watermark(self, process: str, key: Key, high_watermark: int, invoked_s: float) -> None:
        """One consumer must never see it go back, unless a power cut took what was not flushed."""
        asked_s, seen = self.high_watermarks.get((process, key), (0.0, -1))
        if high_watermark < seen and (self.is_durable(key) or not self.lost_power_since(asked_s)):
            self.find("high-watermark-regression", (process, key, seen, high_watermark))
        self.high_watermarks[process, key] = invoked_s, high_watermark

    def saw_assignment(self, member: str, generation: int, keys: list[Key]) -> None:
        for key in keys:
            owner = self.owners.setdefault((generation, key), member)
            if owner != member and not self.power_cuts_s:  # a generation that was lost with the power may be counted again
                self.find("double-owner", (generation, key, owner, member))

    def saw_committed(self, key: Key, offset: int, invoked_s: float) -> None:
        """OffsetFetch must not return less than what was acknowledged before it was asked, unless less was committed afterwards: so does
        a consumer that starts over, because a power cut took the records at its position."""
        for commit in self.commits:
            if commit.key != key or commit.returned_s is None or commit.returned_s >= invoked_s or commit.offset <= offset:
                continue
            if not self.are_commits_durable and self.lost_power_since(commit.invoked_s):
                continue
            returned_s = commit.returned_s
            if not any(later.key == key and later.invoked_s >= returned_s and later.offset <= offset for later in self.commits):
                self.find("commit-regression", (key, commit.offset, offset))
                return

    def commit_acknowledged(self, commit: Commit, now_s: float) -> None:
        commit.returned_s = now_s
        newer = [generation for seen_s, generation in self.generations_s if seen_s < commit.invoked_s and generation > commit.generation]
        if newer and not self.power_cuts_s:
            self.find("zombie-commit", (commit.key, commit.generation, max(newer)))

    # -- the check at the end --------------------------------------------------------------------------------------

    def check(self, final: dict[Key, list[Position]], segment_starts: dict[Key, list[int]]) -> dict[str, list[Any]]:
        """All anomalies with their evidence. `final` is what a reader found at the end, from the first offset to the last."""
        self.segment_starts = segment_starts
        findings = {anomaly: list(evidence) for anomaly, evidence in self.findings.items()}
        operations = self._without_what_power_took(final, findings)
        reader = [{"p": "final", "f": "poll", "t": "ok", "m": [("poll", {key: positions})]} for key, positions in final.items()]
        for anomaly, evidence in check([*operations, *reader]).items():
            if anomaly in SKIPS:
                evidence = [skip for skip in evidence if not self._is_over_a_hole(*skip)]
            if evidence:
                findings.setdefault(anomaly, []).extend(evidence)
        return findings

    def _is_over_a_hole(self, process: str, key: Key, previous: int, offset: int) -> bool:
        """Whether a power cut may have taken what the consumer skipped between two offsets.

        Either from the replica that it read: the ends of the segments of a log that is not flushed, while those behind them survived.
        Other replicas may still have it. Or the consumer had read up to `offset` before the cut, and other records have come in their
        place: it goes on where it was, as a consumer does that asks for no epochs (KIP-320)."""
        if self.is_durable(key):
            return False
        read_s = max(each["ret"] for each in self.operations if each["p"] == process and _has_read(each, key, offset))
        skipped_s = [
            each["inv"] for each in self.operations for step in each["m"]
            if step[0] == "send" and step[1] == key and step[2] is not None and previous < step[2] < offset
        ]  # fmt: skip
        had_read_s = [each["ret"] for each in self.operations if each["p"] == process and _has_read(each, key, offset - 1)]
        since_s = min(max(skipped_s, default=read_s), min(had_read_s, default=read_s))
        return any(since_s <= cut_s <= read_s for cut_s in self.power_cuts_s)

    def _without_what_power_took(self, final: dict[Key, list[Position]], findings: dict[str, list[Any]]) -> list[dict[str, Any]]:
        """The operations without the records that a power cut may have taken.

        Such a record was acknowledged or read before a cut, is not at its offset in the end, and nothing after it in its segment survived
        that was acknowledged before the same cut: a power cut takes the end of a file, never its middle. It may still be read after the
        cut, from a follower that has not heard of its leader's return."""
        left = {key: dict(positions) for key, positions in final.items()}
        survivors = self._acknowledged(left)
        taken: set[tuple[Key, int, Any]] = set()
        kept = []
        for operation in self.operations:
            steps = [self._trimmed(step, operation, left, survivors, findings, taken) for step in operation["m"]]
            if not operation["m"] or any(steps):
                kept.append({**operation, "m": [step for step in steps if step]})
        return kept

    def _acknowledged(self, left: dict[Key, dict[int, Any]]) -> dict[Key, list[tuple[float, int]]]:
        """(when acknowledged, offset) of the records of each key that are there in the end."""
        found: dict[Key, list[tuple[float, int]]] = defaultdict(list)
        for operation in self.operations:
            for step in operation["m"]:
                if step[0] == "send" and operation["t"] == "ok" and step[2] is not None and left.get(step[1], {}).get(step[2]) == step[3]:
                    found[step[1]].append((operation["ret"], step[2]))
        return found

    def _trimmed(
        self,
        step: Any,
        operation: dict[str, Any],
        left: dict[Key, dict[int, Any]],
        survivors: dict[Key, list[tuple[float, int]]],
        findings: dict[str, list[Any]],
        taken: set[tuple[Key, int, Any]],
    ) -> Any:
        def is_taken(key: Key, offset: int | None, value: Any) -> bool:
            if self.is_durable(key) or offset is None or key not in left or left[key].get(offset) == value:
                return False
            if not self.lost_power_since(operation["inv"]):
                return False
            cut_s = min(each for each in self.power_cuts_s if each >= operation["inv"])  # the first that may have taken it
            is_surely_older = operation["ret"] <= cut_s
            behind = [other for when_s, other in survivors.get(key, ()) if other > offset and when_s <= cut_s] if is_surely_older else []
            if behind and not any(offset < start <= min(behind) for start in self.segment_starts.get(key, ())):
                findings.setdefault("lost-in-the-middle", []).append((key, offset, value, behind[0]))
            return True

        if step[0] == "send":
            if not is_taken(step[1], step[2], step[3]):
                return step
            taken.add((step[1], step[2], step[3]))
            return None
        polled = {
            key: [(offset, value) for offset, value in positions if (key, offset, value) not in taken and not is_taken(key, offset, value)]
            for key, positions in step[1].items()
        }
        return ("poll", polled)


def _has_read(operation: dict[str, Any], key: Key, offset: int) -> bool:
    return any(step[0] == "poll" and any(each == offset for each, _ in step[1].get(key, ())) for step in operation["m"])
