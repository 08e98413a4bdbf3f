"""Transcripts of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the timeouts between them."""

from tests.broker.groups.transcript import Transcript


def test_first_member_of_a_new_group_leads_generation_one():
    script = Transcript()

    script.join("a")
    script.advance(0)
    script.sync("a", a="A")

    script.expect(
        "log: group generation=0",
        "a join generation=1 leader=a members=a protocol=range",
        "log: group generation=1 a=A",
        "a sync assignment=A",
    )


def test_member_id_is_required_before_a_dynamic_member_joins():
    """KIP-394: else a client whose first answer got lost would leave a dead member behind with each try."""
    script = Transcript()

    script.join("a", version=4)
    script.join("a", version=4)
    script.advance(0)

    script.expect(
        "log: group generation=0",
        "a join MEMBER_ID_REQUIRED",
        "a join generation=1 leader=a members=a protocol=range",
    )


def test_initial_rebalance_waits_for_its_delay():
    script = Transcript(initial_rebalance_delay_ms=3000)

    script.join("a")
    script.skip()
    script.advance(2999)
    script.expect()
    script.advance(1)

    script.expect("a join generation=1 leader=a members=a protocol=range")
