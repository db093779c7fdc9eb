"""What Apache Kafka 4.3.1 answers to each request of `quorum_cases`, asked on 2026-11-21. PURE.

Two differences of ours are meant: a FetchSnapshot that cannot be served gets its code (Kafka means it too,
but fails to encode the answer and tells UNKNOWN_SERVER_ERROR), and what ends a Kafka process is refused.
Not asked: BeginQuorumEpoch or EndQuorumEpoch of a second leader in one epoch, which ends a process of either
kind (Q21).
"""

from tests.compat.quorum_cases import (
    FOLLOWER,
    HUGE,
    LEADER,
    OTHER_ID,
    UNKNOWN_ID,
    Case,
    begin,
    create_topic,
    delete_topic,
    describe,
    describe_cluster,
    end,
    envelope,
    fetch,
    heartbeat,
    in_envelope,
    producer_ids,
    register,
    register_controller,
    snapshot,
    vote,
)

_OK = "NONE NONE leader:leader@now hw:end empty at:leader"
_RECORDS = "NONE NONE leader:leader@now hw:end records at:leader"
_LOAD = "NONE NONE leader:leader@now load-newest hw:end empty at:leader"


def _fetch_error(code: str) -> str:
    return f"NONE {code} leader:leader@now hw:-1 empty at:leader"


FETCHES = (
    Case("at the end", LEADER, 18, fetch, _OK),
    Case("at the end, v17", LEADER, 17, fetch, _OK),
    Case("high watermark known", LEADER, 18, lambda w: fetch(w, p_high_watermark=w.end_offset), _OK),
    Case("by name, v12", LEADER, 12, fetch, "INVALID_REQUEST"),
    Case("another cluster", LEADER, 18, lambda w: fetch(w, cluster_id="x"), "INCONSISTENT_CLUSTER_ID"),
    Case("no cluster", LEADER, 18, lambda w: fetch(w, cluster_id=None), _OK),
    Case("another topic", LEADER, 18, lambda w: fetch(w, t_topic_id=OTHER_ID), "INVALID_REQUEST"),
    Case("another partition", LEADER, 18, lambda w: fetch(w, p_partition=1), "INVALID_REQUEST"),
    Case("two partitions", LEADER, 18, lambda w: fetch(w, rows=2), "INVALID_REQUEST"),
    Case("no partition", LEADER, 18, lambda w: fetch(w, rows=0), "INVALID_REQUEST"),
    Case(
        "stale epoch", LEADER, 18,
        lambda w: fetch(w, p_current_leader_epoch=w.epoch - 1, p_last_fetched_epoch=w.epoch - 1),
        _fetch_error("FENCED_LEADER_EPOCH"),
    ),
    Case(
        "future epoch", LEADER, 18, lambda w: fetch(w, p_current_leader_epoch=w.epoch + 1),
        _fetch_error("UNKNOWN_LEADER_EPOCH"),
    ),
    Case(
        "epoch -1 is no wildcard", LEADER, 18, lambda w: fetch(w, p_current_leader_epoch=-1),
        _fetch_error("INVALID_REQUEST"),
    ),
    Case(
        "last fetched epoch beyond the current", LEADER, 18,
        lambda w: fetch(w, p_last_fetched_epoch=w.epoch + 1), _fetch_error("INVALID_REQUEST"),
    ),
    Case(
        "last fetched epoch -1", LEADER, 18,
        lambda w: fetch(w, p_last_fetched_epoch=-1, p_fetch_offset=0),
        _fetch_error("INVALID_REQUEST"),
    ),
    Case(
        "negative wait", LEADER, 18, lambda w: fetch(w, max_wait_ms=-1),
        _fetch_error("INVALID_REQUEST"),
    ),
    Case(
        "negative offset", LEADER, 18, lambda w: fetch(w, p_fetch_offset=-1),
        _fetch_error("INVALID_REQUEST"),
    ),
    Case("to a follower", FOLLOWER, 18, fetch, _fetch_error("NOT_LEADER_OR_FOLLOWER")),
    Case(
        "future epoch to a follower", FOLLOWER, 18,
        lambda w: fetch(w, p_current_leader_epoch=w.epoch + 1),
        _fetch_error("UNKNOWN_LEADER_EPOCH"),
    ),
    Case(
        "stale epoch to a follower", FOLLOWER, 18,
        lambda w: fetch(w, p_current_leader_epoch=w.epoch - 1, p_last_fetched_epoch=w.epoch - 1),
        _fetch_error("FENCED_LEADER_EPOCH"),
    ),
    Case(
        "beyond the end", LEADER, 18, lambda w: fetch(w, p_fetch_offset=w.end_offset + 5),
        "NONE NONE leader:leader@now diverging:now,end hw:end empty at:leader",
    ),
    Case(
        "from the start", LEADER, 18,
        lambda w: fetch(w, p_fetch_offset=0, p_last_fetched_epoch=0), _LOAD,
    ),
    Case(
        "an old place that is right", LEADER, 18,
        lambda w: fetch(w, p_fetch_offset=w.start_offset + 1, p_last_fetched_epoch=w.first_epoch),
        _RECORDS,
    ),
    Case(
        "an epoch before the snapshots", LEADER, 18,
        lambda w: fetch(w, p_fetch_offset=1, p_last_fetched_epoch=0), _LOAD,
    ),
    Case(
        "beyond the end of an old epoch", LEADER, 18,
        lambda w: fetch(w, p_last_fetched_epoch=w.first_epoch),
        "NONE NONE leader:leader@now diverging:first,first-end hw:end empty at:leader",
    ),
    Case("the last batch", LEADER, 18, lambda w: fetch(w, p_fetch_offset=w.end_offset - 1), _RECORDS),
    Case(
        "one batch comes whatever its size", LEADER, 18,
        lambda w: fetch(w, max_bytes=0, p_fetch_offset=w.end_offset - 1), _RECORDS,
    ),
    Case("a nobody", LEADER, 18, lambda w: fetch(w, replica_id=-1), _OK),
    Case("a stranger", LEADER, 18, lambda w: fetch(w, replica_id=UNKNOWN_ID), _OK),
    Case("a session", LEADER, 18, lambda w: fetch(w, session_id=5, session_epoch=3), _OK),
)  # fmt: skip

_ALL = "NONE NONE leader:leader@now bytes:all of all at:leader"
_BROKEN = "UNKNOWN_SERVER_ERROR"


def _snapshot_error(code: str) -> str:
    return f"NONE {code} leader:leader@now bytes:0 of 0 at:leader"


SNAPSHOTS = (
    Case("whole", LEADER, 1, snapshot, _ALL),
    Case("whole, v0", LEADER, 0, snapshot, "NONE NONE leader:leader@now bytes:all of all"),
    Case("no cluster", LEADER, 1, lambda w: snapshot(w, cluster_id=None), _ALL),
    Case(
        "another cluster", LEADER, 1, lambda w: snapshot(w, cluster_id="x"),
        "INCONSISTENT_CLUSTER_ID",
    ),
    Case(
        "from byte 10", LEADER, 1, lambda w: snapshot(w, p_position=10),
        "NONE NONE leader:leader@now bytes:all-10 of all at:leader",
    ),
    Case(
        "the last byte", LEADER, 1, lambda w: snapshot(w, p_position=w.snapshot_bytes - 1),
        "NONE NONE leader:leader@now bytes:1 of all at:leader",
    ),
    Case(
        "a hundred bytes", LEADER, 1, lambda w: snapshot(w, max_bytes=100),
        "NONE NONE leader:leader@now bytes:100 of all at:leader",
    ),
    Case(
        "no bytes", LEADER, 1, lambda w: snapshot(w, max_bytes=0),
        "NONE NONE leader:leader@now bytes:0 of all at:leader",
    ),
    Case(
        "another topic", LEADER, 1, lambda w: snapshot(w, name="foo"), _BROKEN,
        "NONE UNKNOWN_TOPIC_OR_PARTITION leader:0@0 bytes:0 of 0 at:leader",
    ),
    Case(
        "another partition", LEADER, 1, lambda w: snapshot(w, p_partition=1), _BROKEN,
        "NONE UNKNOWN_TOPIC_OR_PARTITION leader:0@0 bytes:0 of 0 at:leader",
    ),
    Case(
        "stale epoch", LEADER, 1, lambda w: snapshot(w, p_current_leader_epoch=w.epoch - 1), _BROKEN,
        _snapshot_error("FENCED_LEADER_EPOCH"),
    ),
    Case(
        "future epoch", LEADER, 1, lambda w: snapshot(w, p_current_leader_epoch=w.epoch + 1), _BROKEN,
        _snapshot_error("UNKNOWN_LEADER_EPOCH"),
    ),
    Case(
        "epoch -1 is no wildcard", LEADER, 1, lambda w: snapshot(w, p_current_leader_epoch=-1),
        _BROKEN, _snapshot_error("FENCED_LEADER_EPOCH"),
    ),
    Case("as much as there is", LEADER, 1, lambda w: snapshot(w, max_bytes=2**31 - 1), _ALL),
    Case(
        # It ends a Kafka process.
        "less than nothing", LEADER, 1, lambda w: snapshot(w, max_bytes=-1), "",
        _snapshot_error("INVALID_REQUEST"),
    ),
    Case(
        "to a follower", FOLLOWER, 1, snapshot, _BROKEN, _snapshot_error("NOT_LEADER_OR_FOLLOWER")
    ),
    Case(
        "one that is not there", LEADER, 1,
        lambda w: snapshot(w, id=(w.snapshot[0] + 1, w.snapshot[1])), _BROKEN,
        _snapshot_error("SNAPSHOT_NOT_FOUND"),
    ),
    Case(
        "another epoch of its offset", LEADER, 1, lambda w: snapshot(w, id=(w.snapshot[0], 99)),
        _BROKEN, _snapshot_error("SNAPSHOT_NOT_FOUND"),
    ),
    Case(
        "the bootstrap snapshot", LEADER, 1, lambda w: snapshot(w, id=(0, 0)), _BROKEN,
        _snapshot_error("SNAPSHOT_NOT_FOUND"),
    ),
    Case(
        "a negative id", LEADER, 1, lambda w: snapshot(w, id=(-1, -1)), _BROKEN,
        _snapshot_error("SNAPSHOT_NOT_FOUND"),
    ),
    Case(
        "a negative position", LEADER, 1, lambda w: snapshot(w, p_position=-1), _BROKEN,
        _snapshot_error("POSITION_OUT_OF_RANGE"),
    ),
    Case(
        "its end", LEADER, 1, lambda w: snapshot(w, p_position=w.snapshot_bytes), _BROKEN,
        _snapshot_error("POSITION_OUT_OF_RANGE"),
    ),
    Case(
        "far beyond", LEADER, 1, lambda w: snapshot(w, p_position=HUGE), _BROKEN,
        _snapshot_error("POSITION_OUT_OF_RANGE"),
    ),
    # Ends a Kafka process.
    Case("no partition", LEADER, 1, lambda w: snapshot(w, rows=0), "", "INVALID_REQUEST"),
    Case(
        "negative bytes", LEADER, 1, lambda w: snapshot(w, max_bytes=-1), "",
        _snapshot_error("INVALID_REQUEST"),
    ),
)  # fmt: skip

_REFUSED = "NONE NONE leader:leader@now refused at:leader"


def _vote_error(code: str) -> str:
    return f"NONE {code} leader:leader@now refused at:leader"


VOTES = (
    Case("pre-vote to the leader", LEADER, 2, vote, _REFUSED),
    Case(
        "pre-vote to one that follows", FOLLOWER, 2, lambda w: vote(w, voter_id=w.follower), _REFUSED
    ),
    Case(
        "vote in this epoch to the leader", LEADER, 2,
        lambda w: vote(w, pre_vote=False, last_offset_epoch=w.epoch - 1), _REFUSED,
    ),
    Case(
        "vote in this epoch to a follower", FOLLOWER, 2,
        lambda w: vote(w, voter_id=w.follower, pre_vote=False, last_offset_epoch=w.epoch - 1),
        _REFUSED,
    ),
    Case(
        "stale epoch, v0", LEADER, 0,
        lambda w: vote(w, replica_epoch=w.epoch - 1, last_offset_epoch=0),
        "NONE FENCED_LEADER_EPOCH leader:leader@now refused",
    ),
    Case(
        "stale epoch, v1", LEADER, 1,
        lambda w: vote(w, replica_epoch=w.epoch - 1, last_offset_epoch=0),
        _vote_error("FENCED_LEADER_EPOCH"),
    ),
    Case(
        "stale epoch", LEADER, 2, lambda w: vote(w, replica_epoch=w.epoch - 1, last_offset_epoch=0),
        _vote_error("FENCED_LEADER_EPOCH"),
    ),
    Case("another cluster", LEADER, 2, lambda w: vote(w, cluster_id="x"), "INCONSISTENT_CLUSTER_ID"),
    Case("no cluster", LEADER, 2, lambda w: vote(w, cluster_id=None), _REFUSED),
    Case(
        "meant for another voter", LEADER, 2, lambda w: vote(w, voter_id=w.other),
        _vote_error("INVALID_VOTER_KEY"),
    ),
    Case(
        "meant for a stranger", LEADER, 2, lambda w: vote(w, voter_id=UNKNOWN_ID),
        _vote_error("INVALID_VOTER_KEY"),
    ),
    Case("meant for nobody", LEADER, 2, lambda w: vote(w, voter_id=-1), _REFUSED),
    Case(
        "meant for another directory", LEADER, 2, lambda w: vote(w, voter_directory_id=OTHER_ID),
        _vote_error("INVALID_VOTER_KEY"),
    ),
    Case(
        "negative offset", LEADER, 2, lambda w: vote(w, last_offset=-1),
        _vote_error("INVALID_REQUEST"),
    ),
    Case(
        "negative last epoch", LEADER, 2, lambda w: vote(w, last_offset_epoch=-1),
        _vote_error("INVALID_REQUEST"),
    ),
    Case(
        "pre-vote with a last epoch beyond its own", LEADER, 2,
        lambda w: vote(w, last_offset_epoch=w.epoch + 1), _vote_error("INVALID_REQUEST"),
    ),
    Case(
        "vote with a last epoch of its own", LEADER, 2, lambda w: vote(w, pre_vote=False),
        _vote_error("INVALID_REQUEST"),
    ),
    Case(
        "by nobody", LEADER, 2, lambda w: vote(w, replica_id=-1), _vote_error("INVALID_REQUEST")
    ),
    Case(
        "by a stranger", FOLLOWER, 2,
        lambda w: vote(w, voter_id=w.follower, replica_id=UNKNOWN_ID), _REFUSED,
    ),
    Case("by the one that is asked", LEADER, 2, lambda w: vote(w, replica_id=w.leader), _REFUSED),
    Case("another topic", LEADER, 2, lambda w: vote(w, name="foo"), "INVALID_REQUEST"),
    Case("another partition", LEADER, 2, lambda w: vote(w, partition_index=1), "INVALID_REQUEST"),
    Case("two partitions", LEADER, 2, lambda w: vote(w, rows=2), "INVALID_REQUEST"),
    Case("no partition", LEADER, 2, lambda w: vote(w, rows=0), "INVALID_REQUEST"),
    Case(
        # Kafka grants it and stores the epoch: its quorum never elects again.
        "in the last epoch", LEADER, 2,
        lambda w: vote(w, replica_epoch=2**31 - 1, pre_vote=False, last_offset=HUGE), "",
        _vote_error("INVALID_REQUEST"),
    ),
)  # fmt: skip


def _epoch_error(code: str) -> str:
    return f"NONE {code} leader:leader@now at:leader"


_SAME_LEADER = "NONE NONE leader:leader@now at:leader"

BEGINS_AND_ENDS = (
    Case("begin again", FOLLOWER, 1, begin, _SAME_LEADER),
    Case(
        "begin, stale, v0", FOLLOWER, 0, lambda w: begin(w, leader_epoch=w.epoch - 1),
        "NONE FENCED_LEADER_EPOCH leader:leader@now",
    ),
    Case(
        "begin, stale", FOLLOWER, 1, lambda w: begin(w, leader_epoch=w.epoch - 1),
        _epoch_error("FENCED_LEADER_EPOCH"),
    ),
    Case(
        "begin, stale, to the leader", LEADER, 1,
        lambda w: begin(w, voter_id=w.leader, leader_epoch=w.epoch - 1),
        _epoch_error("FENCED_LEADER_EPOCH"),
    ),
    Case(
        "begin, another cluster", FOLLOWER, 1, lambda w: begin(w, cluster_id="x"),
        "INCONSISTENT_CLUSTER_ID",
    ),
    Case(
        "begin, meant for another", FOLLOWER, 1, lambda w: begin(w, voter_id=w.other),
        _epoch_error("INVALID_VOTER_KEY"),
    ),
    Case(
        "begin, meant for another directory", FOLLOWER, 1,
        lambda w: begin(w, voter_directory_id=OTHER_ID), _epoch_error("INVALID_VOTER_KEY"),
    ),
    Case("begin, another topic", FOLLOWER, 1, lambda w: begin(w, name="foo"), "INVALID_REQUEST"),
    Case(
        "begin, another partition", FOLLOWER, 1, lambda w: begin(w, partition_index=1),
        "INVALID_REQUEST",
    ),
    Case("begin, two partitions", FOLLOWER, 1, lambda w: begin(w, rows=2), "INVALID_REQUEST"),
    Case(
        # It ends a Kafka process.
        "begin, another leader", FOLLOWER, 1, lambda w: begin(w, leader_id=w.other), "",
        _epoch_error("INVALID_REQUEST"),
    ),
    Case(
        # And the leader's, too.
        "begin, another leader, to the leader", LEADER, 1,
        lambda w: begin(w, voter_id=w.leader, leader_id=w.other), "",
        _epoch_error("INVALID_REQUEST"),
    ),
    Case("end, stale, v0", FOLLOWER, 0, end, "NONE FENCED_LEADER_EPOCH leader:leader@now"),
    Case("end, stale", FOLLOWER, 1, end, _epoch_error("FENCED_LEADER_EPOCH")),
    Case("end, stale, to the leader", LEADER, 1, end, _epoch_error("FENCED_LEADER_EPOCH")),
    Case(
        "end, another cluster", FOLLOWER, 1, lambda w: end(w, cluster_id="x"),
        "INCONSISTENT_CLUSTER_ID",
    ),
    Case("end, another topic", FOLLOWER, 1, lambda w: end(w, name="foo"), "INVALID_REQUEST"),
    Case(
        "end, another partition", FOLLOWER, 1, lambda w: end(w, partition_index=1),
        "INVALID_REQUEST",
    ),
    Case(
        "end of nobody", FOLLOWER, 1, lambda w: end(w, leader_id=-1, leader_epoch=w.epoch),
        _epoch_error("INVALID_REQUEST"),
    ),
    Case(
        "end, told to the leader itself", LEADER, 1, lambda w: end(w, leader_epoch=w.epoch),
        _SAME_LEADER,
    ),
)  # fmt: skip

DESCRIPTIONS = (
    Case("quorum, v0", LEADER, 0, lambda w: describe(), "NONE NONE leader:leader@now"),
    Case("quorum", LEADER, 2, lambda w: describe(), "NONE NONE leader:leader@now"),
    Case(
        "quorum, to a follower", FOLLOWER, 2, lambda w: describe(),
        "NONE NOT_LEADER_OR_FOLLOWER leader:0@0",
    ),
    Case(
        "quorum of another topic", LEADER, 2, lambda w: describe("foo"),
        "NONE UNKNOWN_TOPIC_OR_PARTITION leader:0@0",
    ),
    Case(
        "quorum of another partition", FOLLOWER, 2, lambda w: describe(partition=1),
        "NONE UNKNOWN_TOPIC_OR_PARTITION leader:0@0",
    ),
    Case("controllers", LEADER, 2, lambda w: describe_cluster(2), "NONE"),
    Case("controllers, of a follower", FOLLOWER, 2, lambda w: describe_cluster(2), "NONE"),
    Case("brokers, here", LEADER, 2, lambda w: describe_cluster(1), "MISMATCHED_ENDPOINT_TYPE"),
    Case("what, here", LEADER, 2, lambda w: describe_cluster(3), "UNSUPPORTED_ENDPOINT_TYPE"),
)  # fmt: skip

REGISTRATIONS = (
    Case(
        "broker, another cluster", LEADER, 4, lambda w: register(w, cluster_id="x"),
        "INCONSISTENT_CLUSTER_ID",
    ),
    Case("broker, no directory", LEADER, 4, lambda w: register(w, log_dirs=[]), "INVALID_REGISTRATION"),
    Case(
        "broker, v1 cannot say directories", LEADER, 1, lambda w: register(w, log_dirs=[]),
        "INVALID_REGISTRATION",
    ),
    Case(
        "broker, reserved directory", LEADER, 4,
        lambda w: register(w, log_dirs=[(1).to_bytes(16, "big")]), "INVALID_REGISTRATION",
    ),
    Case(
        "broker, directory 0", LEADER, 4, lambda w: register(w, log_dirs=[bytes(16)]),
        "INVALID_REGISTRATION",
    ),
    Case(
        "broker, a directory twice", LEADER, 4, lambda w: register(w, log_dirs=[OTHER_ID, OTHER_ID]),
        "INVALID_REGISTRATION",
    ),
    Case("broker, no features", LEADER, 4, lambda w: register(w, features={}), "INVALID_REGISTRATION"),
    Case(
        "broker, too old", LEADER, 4,
        lambda w: register(w, features={"metadata.version": (7, 20)}), "UNSUPPORTED_VERSION",
    ),
    Case(
        "broker, of ZooKeeper", LEADER, 4, lambda w: register(w, is_migrating_zk_broker=True),
        "BROKER_ID_NOT_REGISTERED",
    ),
    Case(
        # Kafka registers it.
        "broker, a negative id", LEADER, 4, lambda w: register(w, broker_id=-1), "",
        "INVALID_REGISTRATION",
    ),
    Case("broker, to a follower", FOLLOWER, 4, register, "NOT_CONTROLLER"),
    Case("heartbeat, unknown", LEADER, 2, heartbeat, "STALE_BROKER_EPOCH"),
    Case("heartbeat, to a follower", FOLLOWER, 2, heartbeat, "NOT_CONTROLLER"),
    Case("producer ids, unknown", LEADER, 0, producer_ids, "STALE_BROKER_EPOCH"),
    Case("producer ids, of a follower", FOLLOWER, 0, producer_ids, "NOT_CONTROLLER"),
    Case("controller, to a follower", FOLLOWER, 0, register_controller, "NOT_CONTROLLER"),
)  # fmt: skip

FORWARDED = (
    Case("direct", LEADER, 7, lambda w: create_topic(), "INVALID_REPLICATION_FACTOR"),
    Case("direct to a follower", FOLLOWER, 7, lambda w: create_topic(), "NOT_CONTROLLER"),
    Case("delete nothing", LEADER, 6, lambda w: delete_topic(), "UNKNOWN_TOPIC_OR_PARTITION"),
    Case("enveloped", LEADER, 0, lambda w: in_envelope(create_topic(), 7), "NONE"),
    Case("to a follower", FOLLOWER, 0, lambda w: in_envelope(create_topic(), 7), "NOT_CONTROLLER"),
    Case("what is not forwarded", LEADER, 0, lambda w: in_envelope(fetch(w), 18), "INVALID_REQUEST"),
    Case("garbage", LEADER, 0, lambda w: envelope(b"\x00\x13\x00"), "UNSUPPORTED_VERSION"),
    Case("nothing", LEADER, 0, lambda w: envelope(b""), "UNSUPPORTED_VERSION"),
    Case(
        "a cut request", LEADER, 0, lambda w: in_envelope(create_topic(), 7, cut=3),
        "UNSUPPORTED_VERSION",
    ),
    Case(
        "a version unheard of", LEADER, 0, lambda w: envelope(b"\x00\x13\x00\x63" + bytes(20)),
        "UNSUPPORTED_VERSION",
    ),
    Case(
        "without a principal", LEADER, 0, lambda w: in_envelope(create_topic(), 7, principal=None),
        "PRINCIPAL_DESERIALIZATION_FAILURE",
    ),
    Case(
        "a garbled principal", LEADER, 0, lambda w: in_envelope(create_topic(), 7, principal=b"zz"),
        "PRINCIPAL_DESERIALIZATION_FAILURE",
    ),
    Case(
        "an address of three bytes", LEADER, 0,
        lambda w: in_envelope(create_topic(), 7, host=b"abc"), "INVALID_REQUEST",
    ),
)  # fmt: skip

# These make the quorum elect, so they come last, each after a new leader is known.
DISTURBING = (
    Case("end of this epoch", FOLLOWER, 1, lambda w: end(w, leader_epoch=w.epoch), _SAME_LEADER),
    Case(
        "vote in the next epoch, short log", LEADER, 2,
        lambda w: vote(w, replica_epoch=w.epoch + 1, pre_vote=False, last_offset=0, last_offset_epoch=0),
        "NONE NONE leader:none@next refused",
    ),
    Case(
        "vote in the next epoch, for another voter", LEADER, 2,
        lambda w: vote(w, voter_id=w.other, replica_epoch=w.epoch + 1, pre_vote=False),
        "NONE INVALID_VOTER_KEY leader:none@next refused",
    ),
    Case(
        "pre-vote in the next epoch, short log", LEADER, 2,
        lambda w: vote(w, replica_epoch=w.epoch + 1, last_offset=0, last_offset_epoch=0),
        "NONE NONE leader:none@next refused",
    ),
    Case(
        "pre-vote in the next epoch, long log", LEADER, 2,
        lambda w: vote(w, replica_epoch=w.epoch + 1, last_offset=HUGE),
        "NONE NONE leader:none@next granted",
    ),
    Case(
        "vote in the next epoch, long log", LEADER, 2,
        lambda w: vote(w, replica_epoch=w.epoch + 1, pre_vote=False, last_offset=HUGE),
        "NONE NONE leader:none@next granted",
    ),
    Case(
        "vote of a stranger, long log", FOLLOWER, 2,
        lambda w: vote(
            w, voter_id=w.follower, replica_id=UNKNOWN_ID, replica_epoch=w.epoch + 1,
            pre_vote=False, last_offset=HUGE,
        ),
        "NONE NONE leader:none@next granted",
    ),
    Case(
        "begin of the next epoch", FOLLOWER, 1,
        lambda w: begin(w, leader_id=w.other, leader_epoch=w.epoch + 1),
        "NONE NONE leader:other@next at:other",
    ),
)  # fmt: skip

TABLE = {
    "fetch": FETCHES,
    "snapshot": SNAPSHOTS,
    "vote": VOTES,
    "epoch": BEGINS_AND_ENDS,
    "describe": DESCRIPTIONS,
    "register": REGISTRATIONS,
    "forward": FORWARDED,
    "disturb": DISTURBING,
}
