"""DeleteGroups: what may be deleted, what is left in the log, and when the answer comes."""

from __future__ import annotations

import pytest

from broker.groups.deletions import RECORDS_PER_BATCH
from broker.handlers.groups import delete_groups
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from tests.broker.groups.harness import GroupHandlers, versions
from tests.broker.groups.transcript import Transcript, stable_group
from tests.support.turns import started


def delete(script: Transcript, *groups: str, version: int = 2) -> list[tuple[str, int]]:
    response = GroupHandlers(script).call(delete_groups, version, DeleteGroupsRequest(groups_names=list(groups)))
    return [(result.group_id, result.error_code) for result in response.results]


@pytest.mark.parametrize("version", versions(42))
def test_a_group_leaves_with_its_offsets(version: int) -> None:
    script = Transcript()
    script.commit(1)
    script.commit(2, partition=1)
    script.skip()

    answers = delete(script, "g", version=version)

    assert answers == [("g", 0)]
    script.expect("log: t-0=deleted", "log: t-1=deleted", "log: group deleted")
    script.restart()
    assert not script.groups
    script.fetch()
    script.expect("fetch nothing")


def test_members_keep_their_group() -> None:
    script = stable_group("a")
    script.commit(1, "a", generation=1)
    script.skip()

    assert delete(script, "g") == [("g", ErrorCode.NON_EMPTY_GROUP)]

    script.expect()


def test_a_group_whose_members_left_can_be_deleted() -> None:
    script = stable_group("a")
    script.leave("a")
    script.skip()

    assert delete(script, "g") == [("g", 0)]

    script.expect("log: group deleted")


def test_groups_are_answered_once_each() -> None:
    script = Transcript()
    script.commit(1, group_id="")

    answers = delete(script, "nobody", "", "nobody", "")

    assert sorted(answers) == [("", 0), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)]


def test_only_the_coordinator_deletes() -> None:
    script = Transcript()
    script.commit(1)
    script.coordinator.runtime.on_resigned(0)

    assert delete(script, "g") == [("g", ErrorCode.NOT_COORDINATOR)]


def test_the_answer_waits_for_the_commit() -> None:
    """Also that of a group that is missing only because its deletion is on its way."""
    script = Transcript()
    script.commit(1)
    script.log.is_holding = True
    handlers = GroupHandlers(script)

    replies = [started(handlers.send(delete_groups, 2, DeleteGroupsRequest(groups_names=["g"]))) for _ in range(2)]

    assert not any(reply.is_done for reply in replies)
    script.log.commit()
    assert [reply.value.results[0].error_code for reply in replies] == [0, ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_of_many_offsets_is_deleted_in_several_batches() -> None:
    script = Transcript()
    for partition in range(2 * RECORDS_PER_BATCH + 1):
        script.commit(1, partition=partition)
    before = len(script.log.batches)

    assert delete(script, "g") == [("g", 0)]

    assert len(script.log.batches) - before == 3
    assert not script.groups


def test_a_group_that_a_member_joins_between_two_batches_stays() -> None:
    script = Transcript()
    for partition in range(RECORDS_PER_BATCH + 1):
        script.commit(1, partition=partition)
    deletion = script.coordinator.deletions().delete_group("g")
    next(deletion)
    script.join("a")

    with pytest.raises(StopIteration) as ended:
        next(deletion)

    assert ended.value.value.value is ErrorCode.NON_EMPTY_GROUP
    assert "g" in script.groups
