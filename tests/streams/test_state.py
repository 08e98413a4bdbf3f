"""State of Kafka Streams outlives its instances: in their directories, in changelogs and in standby replicas. It ends by the reset tool."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.clients.topics import eventually
from tests.streams.records import PARTITIONS, Record, Topic, read, send, sending
from tests.streams.sets import last_sets, sets_of, some_numbers
from tests.streams.topics import create_topics, internal_topics
from tests.support.java_host import JavaHost
from tests.support.process import ServerProcess
from tests.support.streams import StreamsHost

WORDS = [f"word{number}" for number in range(20)]


def some_lines(seed: int) -> list[Record]:
    chance = random.Random(seed)
    return [Record(str(number), " ".join(chance.choices(WORDS, k=5))) for number in range(40)]


def counts_of(lines: Iterable[Record]) -> dict[str, list[int]]:
    """What is told of each word in turn, if nothing is told twice."""
    words = Counter(word for line in lines for word in (line.value or "").split())
    return {word: list(range(1, count + 1)) for word, count in words.items()}


def told(results: Iterable[Record]) -> dict[str, list[int]]:
    """What was told of each word in turn."""
    counts: dict[str, list[int]] = defaultdict(list)
    for record in results:
        counts[record.key].append(int(record.value or 0))
    return counts


def test_state_is_restored_from_the_changelog(
    server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    """An instance whose directory is lost goes on exactly where it was; one that has it restores nothing."""
    create_topics(server, application_id, "lines")
    first, second, third = some_lines(1), some_lines(2), some_lines(3)
    start = ("word-count", application_id, server.bootstrap, tmp_path)
    restored = []

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        for number, lines in enumerate((first, second, third), start=1):
            send(server.bootstrap, f"{application_id}-lines", lines)
            with streams_host.start(*start) as instance:
                output.wait_count(number * 200)
                restored.append(sum(instance.describe().restored.values()))
                instance.close(clean=lines is first)
        results = output.read()

    assert told(results) == counts_of([*first, *second, *third])
    assert restored == [0, 200, 0]


def test_state_is_restored_from_a_compacted_changelog(
    make_server: Callable[[dict[str, str]], ServerProcess], streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    """Few of its records are left, among them the last of each word."""
    server = make_server({"log.cleaner.backoff.ms": "200"})
    create_topics(server, application_id, "lines")
    first, second, third = some_lines(1), some_lines(2), some_lines(3)
    start = ("word-count", application_id, server.bootstrap, tmp_path / "state")
    changelog = f"{application_id}-counts-changelog"

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        with streams_host.start(*start, {"topic.segment.ms": "100", "topic.min.cleanable.dirty.ratio": "0.01"}) as instance:
            for number, lines in enumerate((first, second), start=1):
                send(server.bootstrap, f"{application_id}-lines", lines)
                output.wait_count(number * 200)
            eventually(lambda: len(read(server.bootstrap, changelog)) < 300)
            instance.close(clean=True)
        send(server.bootstrap, f"{application_id}-lines", third)
        with streams_host.start(*start) as instance:
            output.wait_count(600)
            restored = sum(instance.describe().restored.values())
        results = output.read()

    assert told(results) == counts_of([*first, *second, *third])
    assert len(WORDS) <= restored < 300


def test_instances_share_the_tasks(server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path) -> None:
    """One that comes later takes some of them with their state, and gives them back when it leaves: nothing is counted twice."""
    create_topics(server, application_id, "lines")
    sent = [some_lines(seed) for seed in (1, 2, 3)]
    start = ("word-count", application_id, server.bootstrap)

    with Topic(server.bootstrap, f"{application_id}-output") as output, streams_host.start(*start, tmp_path / "first") as first:
        send(server.bootstrap, f"{application_id}-lines", sent[0])
        output.wait_count(200)
        with streams_host.start(*start, tmp_path / "second") as second:
            for instance in (first, second):
                instance.wait_until(lambda now: now.state == "RUNNING" and len(now.active) == PARTITIONS, "half of the tasks")
            send(server.bootstrap, f"{application_id}-lines", sent[1])
            output.wait_count(400)
            entries = [instance.store("counts") for instance in (first, second)]
        first.wait_until(lambda now: now.state == "RUNNING" and len(now.active) == 2 * PARTITIONS, "all tasks")
        send(server.bootstrap, f"{application_id}-lines", sent[2])
        output.wait_count(600)
        results = output.read()

    assert told(results) == counts_of([*sent[0], *sent[1], *sent[2]])
    assert all(entries)
    assert entries[0] | entries[1] == {word: str(counts[-1]) for word, counts in counts_of([*sent[0], *sent[1]]).items()}


def test_standby_takes_over_from_an_instance_that_is_killed(
    server: ServerProcess, streams_host: StreamsHost, new_host: Callable[[], StreamsHost], application_id: str, tmp_path: Path
) -> None:
    """It has the state already. What the dead instance had not committed is done again: no number is lost, and a set has it once."""
    create_topics(server, application_id, "numbers")
    settings = {"num.standby.replicas": "1", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
    numbers, early_count = some_numbers(2_000), 1_600
    topology = ("collect", application_id, server.bootstrap)
    killed_host = new_host()

    with (
        Topic(server.bootstrap, f"{application_id}-output") as output,
        streams_host.start(*topology, tmp_path / "survivor", settings) as survivor,
    ):
        killed = killed_host.start(*topology, tmp_path / "killed", settings)
        for instance in (survivor, killed):
            instance.wait_until(lambda now: bool(now.state == "RUNNING" and now.active and now.standby), "tasks of both kinds")
        send(server.bootstrap, f"{application_id}-numbers", numbers[:early_count])
        output.wait(lambda results: last_sets(results) == sets_of(numbers[:early_count]), "the early numbers")
        survivor.wait_until(lambda now: not any(now.lags.values()), "a standby that has everything")
        with sending(server.bootstrap, f"{application_id}-numbers", numbers[early_count:]):
            output.wait_count(early_count + 50)
            killed_host.kill()
        output.wait(lambda results: last_sets(results) == sets_of(numbers), "all numbers")
        after = survivor.wait_until(lambda now: len(now.active) == 2 * PARTITIONS and not now.standby, "all tasks")
        stored = survivor.store("collected")

    assert stored == sets_of(numbers)
    with Topic(server.bootstrap, f"{application_id}-collected-changelog") as changelog:
        assert after.restored["collected"] <= sum(end for _, end in changelog.bounds()) - early_count


def test_reset_tool_lets_a_program_begin_anew(
    server: ServerProcess, streams_host: StreamsHost, java_host: JavaHost, application_id: str, tmp_path: Path
) -> None:
    """It moves the group to the beginning and deletes the program's own topics, but not while an instance runs."""
    create_topics(server, application_id, "lines")
    lines = some_lines(4)
    send(server.bootstrap, f"{application_id}-lines", lines)
    words = ("--bootstrap-server", server.bootstrap, "--application-id", application_id, "--input-topics", f"{application_id}-lines")
    start = ("word-count", application_id, server.bootstrap, tmp_path)

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        with streams_host.start(*start) as instance:
            output.wait_count(200)
            refused = java_host.tool("StreamsResetter", *words, expected_status=1)
            instance.close(clean=True)
        before = internal_topics(server.bootstrap, application_id)
        tried = java_host.tool("StreamsResetter", *words, "--dry-run")
        java_host.tool("StreamsResetter", *words)
        eventually(lambda: not internal_topics(server.bootstrap, application_id))
        with streams_host.start(*start):
            output.wait_count(400)
        results = output.read()

    assert "is still active" in refused.stdout + refused.stderr
    assert "counts-changelog" in tried.stdout
    assert before == {"words-repartition", "counts-changelog"}
    assert told(results) == {word: counts * 2 for word, counts in counts_of(lines).items()}
