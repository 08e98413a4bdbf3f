"""Checks a history of Kafka client operations for the anomalies that a broker must never show.

`check(history)` returns {anomaly: [evidence, ...]}, empty for a clean history. A history is a list of completed
operations in real-time order, each a dict:
  p: the process that did it; t: 'ok', 'info' (unknown whether applied) or 'fail' (certainly not applied);
  f: 'send', 'poll', 'txn', 'assign' or 'subscribe'; keys, seek: of the last two;
  m: [('send', key, offset or None, value) | ('poll', {key: [(offset, value), ...]})];
  rebalanced: the keys whose position may have moved during a poll; inv, ret: times of invocation and return, optional.
A key is one topic-partition. Values are unique per key.

Terms: `log[key][offset]` is the set of values seen there, from all polls and from sends proven committed (ok, or info
and read by somebody). `index[key][value]` is the dense rank of its first offset: gaps are legal (control records).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Operation = Mapping[str, Any]
Key = Any
Value = Any
Position = tuple[int, Value]


def writes(operation: Operation) -> list[tuple[Key, int | None, Value]]:
    """The (key, offset, value) of each send in an operation."""
    return [(step[1], step[2], step[3]) for step in operation.get("m", ()) if step[0] == "send"]


def reads(operation: Operation) -> dict[Key, list[Position]]:
    """The (offset, value) pairs that an operation polled, by key, in the order it got them."""
    polled: dict[Key, list[Position]] = defaultdict(list)
    for step in operation.get("m", ()):
        if step[0] == "poll":
            for key, positions in step[1].items():
                polled[key] += positions
    return polled


def check(
    history: Sequence[Operation], *, final_reads_done: bool = True, subscribe: bool = False, write_write_edges: bool = False
) -> dict[str, list[Any]]:
    """The anomalies of a history with the evidence for each.

    final_reads_done: every partition was read to its end, so an acked value nobody saw is lost. subscribe: consumers were
    in groups, whose polls may skip and go back. write_write_edges: look for cycles through write order too (Kafka's
    transactions do not isolate writes, so such cycles are legal and only worth a report).
    """
    checker = _Checker(history)
    checker.check_offsets()
    checker.check_reads()
    checker.check_lost_writes()
    if final_reads_done:
        checker.check_unseen()
    checker.check_transactions(final_reads_done)
    checker.check_real_time_order()
    checker.check_process_order()
    checker.check_cycles(write_write_edges)
    allowed = {"poll-skip", "nonmonotonic-poll"} if subscribe else set()
    return {anomaly: evidence for anomaly, evidence in checker.evidence.items() if evidence and anomaly not in allowed}


class _Checker:
    """One history with its derived log, ranks and writers; each check adds to `evidence`."""

    def __init__(self, history: Sequence[Operation]) -> None:
        self.history = history
        self.ok = [operation for operation in history if operation["t"] == "ok"]
        self.evidence: dict[str, list[Any]] = defaultdict(list)
        self.writer: dict[tuple[Key, Value], Operation] = {}
        self.read_ok: dict[Key, set[Value]] = defaultdict(set)
        for operation in history:
            for key, _, value in writes(operation):
                self.writer[key, value] = operation
        for operation in self.ok:
            for key, positions in reads(operation).items():
                self.read_ok[key] |= {value for _, value in positions}
        self.log = self._derive_log()
        self.offsets = {key: sorted(log) for key, log in self.log.items()}
        self.index = {key: self._rank(key) for key in self.log}

    def _derive_log(self) -> dict[Key, dict[int, set[Value]]]:
        log: dict[Key, dict[int, set[Value]]] = defaultdict(lambda: defaultdict(set))
        for operation in self.history:
            for key, positions in reads(operation).items():
                for offset, value in positions:
                    log[key][offset].add(value)
            if self._is_committed(operation):
                for key, written_offset, value in writes(operation):
                    if written_offset is not None:
                        log[key][written_offset].add(value)
        return log

    def _rank(self, key: Key) -> dict[Value, int]:
        ranks: dict[Value, int] = {}
        for rank, offset in enumerate(self.offsets[key]):
            for value in self.log[key][offset]:
                ranks.setdefault(value, rank)
        return ranks

    def _is_committed(self, operation: Operation) -> bool:
        if operation["t"] == "info":
            return any(value in self.read_ok[key] for key, _, value in writes(operation))
        return bool(operation["t"] == "ok")

    def check_offsets(self) -> None:
        """Two values at one offset, and one value at two offsets."""
        for key, log in self.log.items():
            offsets_of: dict[Value, list[int]] = defaultdict(list)
            for offset in self.offsets[key]:
                if len(log[offset]) > 1:
                    self.evidence["inconsistent-offsets"].append((key, offset, sorted(log[offset])))
                for value in log[offset]:
                    offsets_of[value].append(offset)
            self.evidence["duplicate"] += [(key, value, offsets) for value, offsets in offsets_of.items() if len(offsets) > 1]

    def check_reads(self) -> None:
        """Values that nobody sent, that were aborted, or that their own transaction read before it committed."""
        for operation in self.ok:
            for key, positions in reads(operation).items():
                for offset, value in positions:
                    writer = self.writer.get((key, value))
                    if writer is None:
                        self.evidence["unknown-value"].append((key, offset, value))
                    elif writer["t"] == "fail":
                        self.evidence["aborted-read(G1a)"].append((key, value))
                own = {value for own_key, _, value in writes(operation) if own_key == key} & {value for _, value in positions}
                if own:
                    self.evidence["precommitted-read"].append((key, own))

    def check_lost_writes(self) -> None:
        """Committed values below the furthest read that no successful poll returned."""
        for key, log in self.log.items():
            frontier = max((self.index[key][value] for value in self.read_ok[key] if value in self.index[key]), default=-1)
            last_rank = {value: rank for rank, offset in enumerate(self.offsets[key]) for value in log[offset]}
            for value, rank in last_rank.items():
                if rank > frontier or value in self.read_ok[key] or (key, value) not in self.writer:
                    continue
                if self._is_committed(self.writer[key, value]):
                    self.evidence["lost-write"].append((key, value, self.offsets[key][rank]))

    def check_unseen(self) -> None:
        """Acked values that nobody read, although everything was read."""
        acked: dict[Key, set[Value]] = defaultdict(set)
        for operation in self.ok:
            for key, _, value in writes(operation):
                acked[key].add(value)
        self.evidence["unseen"] += [(key, value) for key in acked for value in sorted(acked[key] - self.read_ok[key])]

    def check_transactions(self, final_reads_done: bool) -> None:
        """Transactions of which only a part is visible, or whose own sends are in the wrong order."""
        for operation in self.history:
            written = writes(operation)
            if len(written) > 1 and operation["t"] != "fail":
                seen = [(key, value) for key, _, value in written if value in self.read_ok[key]]
                missing = [(key, value) for key, _, value in written if value not in self.read_ok[key]]
                if seen and missing and final_reads_done:
                    self.evidence["torn-txn"].append((seen, missing))
            last: dict[Key, int] = {}
            for key, _, value in written:
                rank = self.index.get(key, {}).get(value)
                if rank is not None:
                    if key in last and rank <= last[key]:
                        self.evidence["int-nonmonotonic-send"].append((key, last[key], rank))
                    last[key] = rank

    def check_real_time_order(self) -> None:
        """A send invoked after another one was acked must come later in the log, whoever the producers are."""
        timed: dict[Key, list[tuple[Any, Any, int, Value]]] = defaultdict(list)
        for operation in self.ok:
            if "inv" in operation:
                for key, _, value in writes(operation):
                    if value in self.index.get(key, {}):
                        timed[key].append((operation["inv"], operation["ret"], self.index[key][value], value))
        for key, sends in timed.items():
            returned = sorted(sends, key=lambda send: send[1])
            acked_count, highest = 0, -1
            for invoked, _, rank, value in sorted(sends):
                while acked_count < len(returned) and returned[acked_count][1] < invoked:
                    highest = max(highest, returned[acked_count][2])
                    acked_count += 1
                if rank <= highest:
                    self.evidence["realtime-order"].append((key, value, rank, highest))

    def check_process_order(self) -> None:
        """Each consumer reads without skipping or going back; each producer's sends stay in its order."""
        by_process: dict[Any, list[Operation]] = defaultdict(list)
        for operation in self.history:
            by_process[operation["p"]].append(operation)
        for process, operations in by_process.items():
            last_read: dict[Key, int | None] = {}
            last_sent: dict[Key, int] = {}
            for operation in operations:
                if operation["f"] in ("assign", "subscribe"):
                    if operation["t"] == "ok":
                        kept = () if operation.get("seek") else operation["keys"]
                        last_read = {key: rank for key, rank in last_read.items() if key in kept}
                    continue
                self._check_polls(process, operation, last_read)
                self._check_sends(process, operation, last_sent)

    def _check_polls(self, process: Any, operation: Operation, last_read: dict[Key, int | None]) -> None:
        for key, positions in reads(operation).items():
            previous, prefix = last_read.get(key), ""
            offsets = self.offsets.get(key, [])  # of a partition that nobody has written, polls return nothing
            for _, value in positions:
                rank = self.index[key].get(value)
                if previous is not None and rank is not None and key not in operation.get("rebalanced", ()):
                    if rank - previous > 1:
                        self.evidence[f"{prefix}poll-skip"].append((process, key, offsets[previous], offsets[rank]))
                    elif rank - previous < 1:
                        self.evidence[f"{prefix}nonmonotonic-poll"].append((process, key, offsets[previous], offsets[rank]))
                previous, prefix = rank, "int-"
            if operation["t"] == "ok":
                last_read[key] = previous

    def _check_sends(self, process: Any, operation: Operation, last_sent: dict[Key, int]) -> None:
        for key, _, value in writes(operation):
            rank = self.index.get(key, {}).get(value)
            if rank is None or operation["t"] == "fail":
                continue
            if key in last_sent and rank < last_sent[key]:
                self.evidence["nonmonotonic-send"].append((process, key, last_sent[key], rank))
            last_sent[key] = rank

    def check_cycles(self, write_write_edges: bool) -> None:
        """Operations that each depend on the other (G1c): a reader on its writer, and optionally a write on the one before."""
        nodes = [operation for operation in self.history if operation["t"] != "fail" and (writes(operation) or reads(operation))]
        number = {id(operation): node for node, operation in enumerate(nodes)}
        edges: dict[int, set[int]] = defaultdict(set)
        for operation in nodes:
            for key, positions in reads(operation).items():
                for _, value in positions:
                    self._add_edge(edges, number, self.writer.get((key, value)), operation)
        if write_write_edges:
            for key, offsets in self.offsets.items():
                sequence = [value for offset in offsets for value in sorted(self.log[key][offset])]
                for earlier, later in pairwise(sequence):
                    self._add_edge(edges, number, self.writer.get((key, earlier)), self.writer.get((key, later)))
        self.evidence["G1c"] += list(_cycles(len(nodes), edges))

    @staticmethod
    def _add_edge(edges: dict[int, set[int]], number: dict[int, int], first: Operation | None, second: Operation | None) -> None:
        if first is None or second is None or first is second:
            return
        if id(first) in number and id(second) in number:
            edges[number[id(first)]].add(number[id(second)])


def _cycles(node_count: int, edges: Mapping[int, set[int]]) -> Iterator[list[int]]:
    """Strongly connected components of more than one node (Tarjan's algorithm, without recursion)."""
    numbered: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()

    def enter(node: int) -> tuple[int, Iterator[int]]:
        numbered[node] = low[node] = len(numbered)
        stack.append(node)
        on_stack.add(node)
        return node, iter(sorted(edges.get(node, ())))

    for root in range(node_count):
        if root in numbered:
            continue
        work = [enter(root)]
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in numbered:
                    work.append(enter(successor))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], numbered[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == numbered[node]:
                    component = stack[stack.index(node) :] if stack[-1] != node else [node]
                    del stack[len(stack) - len(component) :]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        yield component
