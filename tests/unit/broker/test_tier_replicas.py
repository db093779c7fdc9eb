"""A tiered topic on three brokers: any may lead, follow, die or lose its disk, and the log is whole."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.errors import Code, ConfigError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, TopicPartition
from firnline.config.topic import TopicConfig
from firnline.log.checkpoint import read_partition_metadata
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k32001_tier_status import TierStatusRequest
from firnline.protocol.messages.k32002_tier_flush import TierFlushRequest, TierFlushTopic
from firnline.replica.partition import Partition
from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError
from firnline.tiered.metadata.partitioner import metadata_partition_of
from firnline.tiered.objects.layout import LEADER_EPOCHS, PRODUCER_SNAPSHOT
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.spi import RemoteSegment, SegmentState
from tests.worlds.cluster import Rig
from tests.worlds.harness import TIER_SETTINGS, batch, values_of
from tests.worlds.tier import FaultyStorage

BROKERS = (4, 5, 6)
ROLES = {1: "controller", **dict.fromkeys(BROKERS, "broker")}
SIZE = 400_000
TIERED = {
    "remote_storage_enable": "true",
    "segment_bytes": "1048576",
    "local_retention_bytes": "1",
    "min_insync_replicas": "1",
}


class World:
    """A cluster with a tier, and topic t on all its brokers."""

    def __init__(
        self,
        *,
        metadata_replicas: int = 3,
        configs: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.store = MemoryStore()
        self.storages: dict[int, FaultyStorage] = {}
        stated: dict[str, Any] = {
            **TIER_SETTINGS,
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(metadata_replicas),
            "replica.lag.time.max.ms": "10000",
            "log.retention.check.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": "1000",
        }
        rig = self.rig = Rig(
            ROLES, **{k.replace(".", "_"): v for k, v in stated.items()}, **settings
        )
        rig.remote_storage = self._storage
        rig.start()
        made = rig.create_topic(4, "t", replicas=3, configs=TIERED | (configs or {}))
        assert made.error_code == 0, made
        rig.until(lambda: all(("t", 0) in rig[n].broker.partitions for n in BROKERS))
        self.count = 0

    def _storage(self, node_id: int) -> FaultyStorage | None:
        if node_id not in BROKERS:
            return None
        made = self.storages[node_id] = FaultyStorage(ObjectStorage(self.store))
        return made

    # ---- looking

    @property
    def living(self) -> list[int]:
        return [n for n in BROKERS if self.rig[n].node is not None]

    def replica(self, node_id: int) -> Partition:
        return self.rig[node_id].broker.partitions["t", 0]

    def log(self, node_id: int) -> Log:
        return self.replica(node_id).log

    @property
    def leader(self) -> int | None:
        for n in self.living:
            state = self.rig[n].broker.image.partition("t", 0)
            if state is not None and state.leader in self.living:
                p = self.rig[state.leader].broker.partitions.get(("t", 0))
                if p is not None and p.is_leader and p.leader_epoch == state.leader_epoch:
                    return state.leader
        return None

    @property
    def followers(self) -> list[int]:
        return [n for n in self.living if n != self.leader]

    def led(self) -> Log:
        assert self.leader is not None
        return self.log(self.leader)

    def isr(self) -> tuple[int, ...]:
        state = self.rig[self.living[0]].broker.image.partition("t", 0)
        assert state is not None
        return tuple(sorted(state.isr))

    def segments(self, node_id: int) -> list[RemoteSegment]:
        tier = self.rig[node_id].broker.tier
        assert tier is not None
        found = tier.services.metadata.segments(TopicIdPartition(self.led().topic_id, 0))
        return [s for s in found if s.state == SegmentState.COPY_FINISHED]  # type: ignore[union-attr]

    def logs_in_the_store(self) -> list[str]:
        return [key for key in self.store.objects if key.endswith(".log")]

    # ---- doing

    def until(self, is_so: Callable[[], Any], at_most_ms: int = 120_000) -> None:
        self.rig.until(is_so, at_most_ms)

    def lead_again(self) -> int:
        self.until(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    def produce(self, count: int) -> None:
        """Write `count` records of which two fill a segment, acks=all."""
        for number in range(self.count, self.count + count):
            data = TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(
                        index=0,
                        records=batch(
                            f"{number}:".ljust(SIZE, "x"),
                            time_ms=self.rig.now_ms,
                            producer_id=7,
                            producer_epoch=0,
                            base_sequence=number,
                        ),
                    )
                ],
            )
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
            answer = self.rig.ask(self.lead_again(), request, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, answer
        self.count += count

    def fetch(self, node_id: int, offset: int, version: int = 12) -> Any:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[part])])
        [topic] = self.rig.ask(node_id, request, version).responses
        return topic.partitions[0]

    def numbers(self, node_id: int) -> list[int]:
        """The record numbers that a consumer reads from the broker, from the log start on."""
        at, end = self.led().log_start_offset, self.led().high_watermark
        seen: list[int] = []
        for _ in range(1000):
            if at >= end:
                break
            row = self.fetch(node_id, at)
            assert row.error_code == 0, (node_id, at, row)
            got = [int(value.partition(":")[0]) for value in values_of(row.records)]
            seen += got
            at += len(got)
        return seen

    def drained(self) -> None:
        """Wait until the leader's local log is but its active segment, and its followers know of it."""
        self.until(lambda: self.led().local_log_start_offset >= self.led().log_end_offset - 2)

    def wipe(self, node_id: int) -> None:
        """The broker dies, and comes back with an empty disk and the directory id it had."""
        member = self.rig[node_id]
        member.kill()
        member.format(directory_id=member.directory_id)

    def restart(self, node_id: int) -> None:
        self.rig[node_id].start()
        self.until(lambda: ("t", 0) in self.rig[node_id].broker.partitions)

    def move_leader(self) -> int:
        """Kill the leader, wait for another, and start the old one again; return who leads now."""
        old = self.lead_again()
        self.rig[old].kill()
        self.until(lambda: self.leader not in (None, old))
        self.restart(old)
        self.until(lambda: self.isr() == BROKERS)
        return self.lead_again()


def same_lineage(one: Log, other: Log) -> bool:
    return one.epochs.entries() == other.epochs.entries()


def producers(log: Log) -> list[tuple[int, int, int]]:
    return [(e.producer_id, e.last_sequence, e.last_offset) for e in log.producers.entries()]


def test_a_leader_copies_though_another_broker_leads_the_metadata() -> None:
    """T20, T21: both metadata partitions are led by one broker each; both kinds of publish are tried."""
    world = World(metadata_replicas=1)
    world.produce(8)
    world.drained()
    where = TopicIdPartition(world.led().topic_id, 0)
    for _ in range(3):
        leader = world.move_leader()
        tier = world.rig[leader].broker.tier
        assert tier is not None
        partition = tier.services.metadata.partition_of(where)  # type: ignore[attr-defined]
        state = world.rig[leader].broker.image.partition(REMOTE_LOG_METADATA_TOPIC, partition)
        assert state is not None
        if state.leader != leader:
            break
    else:
        raise AssertionError("the same broker leads both, always")
    world.produce(8)
    world.drained()
    assert [s.end_offset for s in world.segments(leader)][-1] >= 12
    assert world.numbers(leader) == list(range(world.count))


def test_a_new_leader_goes_on_in_the_tier_without_a_gap() -> None:
    """rel-T11: what is copied twice is at most a segment for each change of the leader."""
    world = World()
    for _ in range(3):
        world.produce(6)
        world.drained()
        world.move_leader()
    world.produce(4)
    world.drained()
    segments = sorted(world.segments(world.lead_again()), key=lambda s: s.base_offset)
    end = 0
    for segment in segments:
        assert segment.base_offset <= end, f"a gap below {segment.base_offset}"
        end = max(end, segment.end_offset + 1)
    copied = sum(s.end_offset + 1 - s.base_offset for s in segments)
    assert copied <= end + 3 * 2, "more than a segment for each change was copied twice"
    assert len({s.broker_id for s in segments}) > 1, "only one broker ever copied"
    assert world.numbers(world.lead_again()) == list(range(world.count))


def test_followers_give_up_local_segments_that_the_tier_has_and_no_others() -> None:
    """T14 on followers: each knows from its own look at the metadata what the tier has."""
    world = World()
    world.produce(8)
    world.drained()
    for n in world.followers:
        log = world.log(n)
        world.until(lambda log=log: log.local_log_start_offset >= 4)
        assert log.local_log_start_offset <= log.highest_remote_offset + 1
        assert log.log_start_offset == 0


def test_a_wiped_follower_begins_in_the_tier_and_joins_the_isr() -> None:
    """T29-T31, rel-T17: its lineage and its producers are the leader's for all that it has not."""
    world = World()
    world.produce(6)
    world.move_leader()
    world.produce(6)
    world.drained()
    victim = world.followers[0]
    world.wipe(victim)
    world.until(lambda: victim not in world.isr())
    world.restart(victim)
    world.until(lambda: victim in world.isr())
    log, led = world.log(victim), world.led()
    assert log.local_log_start_offset > 0, "it fetched what only the tier should have given it"
    assert log.log_start_offset == 0
    assert same_lineage(log, led)
    assert producers(log) == producers(led)
    assert world.numbers(victim if world.leader == victim else world.lead_again()) == list(
        range(12)
    )


def test_a_wiped_follower_that_then_leads_serves_all_of_it() -> None:
    world = World()
    world.produce(6)
    world.move_leader()
    world.produce(6)
    world.drained()
    victim = world.followers[0]
    world.wipe(victim)
    world.restart(victim)
    world.until(lambda: world.isr() == BROKERS)
    for n in BROKERS:
        if n != victim:
            world.rig[n].kill()
    world.until(lambda: world.leader == victim)
    assert world.numbers(victim) == list(range(12))
    world.produce(4)  # in sequence: it knows the producer that it never heard itself
    assert world.numbers(victim) == list(range(16))


def test_a_follower_tries_again_while_the_store_is_down_and_others_go_on() -> None:
    """F27, errors of the store: nothing is given up, no other partition waits, one line says why."""
    world = World()
    world.produce(8)
    world.drained()
    made = world.rig.create_topic(4, "other", replicas=3)
    assert made.error_code == 0
    victim = world.followers[0]
    world.wipe(victim)
    world.restart(victim)
    world.storages[victim].fail("index", RemoteStorageError("down"), times=4)
    member = world.rig[victim]
    world.until(lambda: any("does not follow" in line for line in member.warnings))
    assert world.log(victim).log_end_offset == 0
    assert victim not in world.isr()
    world.until(lambda: ("other", 0) in member.broker.partitions)
    world.until(lambda: victim in world.isr())
    assert len([line for line in member.warnings if "does not follow" in line]) == 1
    assert world.log(victim).log_end_offset == world.count


@pytest.mark.parametrize("suffix", [LEADER_EPOCHS, PRODUCER_SNAPSHOT])
@pytest.mark.parametrize("comes", ["the object", "another segment"])
def test_a_follower_without_one_object_of_its_start_stays_out_and_the_leader_goes_on(
    suffix: str, comes: str
) -> None:
    """F27, a missing object: guessed leader epochs or producers would diverge from the leader's.

    It begins above the newest segment, so another one that is copied meanwhile helps as well.
    """
    world = World()
    world.produce(8)
    world.drained()
    victim = world.followers[0]
    world.wipe(victim)
    world.until(lambda: victim not in world.isr())
    objects = world.store.objects
    lost = {key: objects.pop(key) for key in sorted(objects) if key.endswith(suffix)}
    assert lost
    world.restart(victim)
    member = world.rig[victim]
    world.until(lambda: any("does not follow" in line for line in member.warnings))
    (line,) = [each for each in member.warnings if "does not follow" in each]
    assert "an object of the tier is missing" in line
    world.rig.pass_time(60_000)
    assert world.log(victim).log_end_offset == 0
    assert victim not in world.isr()
    if comes == "the object":
        objects.update(lost)
        world.until(lambda: victim in world.isr())
    world.produce(4)
    world.until(lambda: victim in world.isr())
    assert world.numbers(world.lead_again()) == list(range(12))
    assert same_lineage(world.log(victim), world.led())
    assert producers(world.log(victim)) == producers(world.led())


def test_a_broker_that_lost_its_tier_refuses_to_start_and_the_log_stays_complete() -> None:
    """One start that takes the local start for the log's, and all that lies below would expire."""
    world = World()
    world.produce(8)
    world.drained()
    victim = world.followers[0]
    begins = world.log(victim).log_start_offset, world.log(victim).local_log_start_offset
    assert begins[0] < begins[1], "nothing is in the tier alone: nothing is tried"
    world.rig[victim].settings["remote.log.storage.system.enable"] = "false"
    given = world.rig.remote_storage
    world.rig.remote_storage = lambda node_id: None
    world.rig[victim].kill()
    with pytest.raises(
        ConfigError, match=r"holds tiered topics: t\. Nothing was changed: start it"
    ):
        world.restart(victim)
    world.rig[victim].kill()
    world.rig[victim].settings["remote.log.storage.system.enable"] = "true"
    world.rig.remote_storage = given
    world.restart(victim)
    world.until(lambda: world.isr() == BROKERS)
    assert world.log(victim).log_start_offset == begins[0]


def test_an_old_leaders_copy_in_flight_changes_nothing_for_the_new_one() -> None:
    """T8, F25: cut off after its bytes are stored, it says so late: valid, one segment too much at most."""
    world = World()
    old = world.lead_again()
    world.produce(4)
    world.until(lambda: "copy" in world.storages[old].calls)
    others = [n for n in (1, *BROKERS) if n != old]
    world.rig.cut |= {(old, n) for n in others} | {(n, old) for n in others}
    assert world.segments(old) == [], "that it is stored was said already: nothing is tried"
    world.until(lambda: world.rig[others[1]].broker.image.partition("t", 0).leader in others)  # type: ignore[union-attr]
    world.rig.cut.clear()
    world.until(lambda: world.isr() == BROKERS)
    assert world.lead_again() != old
    world.produce(6)
    world.drained()
    leader = world.lead_again()
    late = [s for s in world.segments(leader) if s.broker_id == old]
    assert len(late) <= 1
    assert world.numbers(leader) == list(range(10))
    for n in world.followers:
        world.until(lambda n=n: world.segments(n) == world.segments(leader))


@pytest.mark.parametrize("version", [10, 11])
def test_a_follower_serves_what_only_the_tier_has(version: int) -> None:
    """T43, F40, KIP-392: from version 11 on consumers may read anywhere, the tier included."""
    world = World()
    world.produce(8)
    world.drained()
    follower = world.followers[0]
    world.until(lambda: world.log(follower).local_log_start_offset > 0)
    row = world.fetch(follower, 0, version)
    if version < 11:
        assert row.error_code == Code.NOT_LEADER_OR_FOLLOWER
        return
    assert row.error_code == 0
    assert next(iter(values_of(row.records))).startswith("0:")


def test_the_tier_is_reported_by_leaders_alone_and_flushed_by_them() -> None:
    """`firnline tier` asks every broker: a partition counts once, and who leads nothing refuses nothing."""
    world = World()
    world.produce(3)
    for n in BROKERS:
        asked = TierFlushRequest(topics=[TierFlushTopic(name="t")], timeout_ms=60_000)
        [flushed] = world.rig.ask(n, asked, 0).topics
        world.rig.pass_time(1_000)
        for request in (TierStatusRequest(topics=["t"]), TierStatusRequest(topics=None)):
            answer = world.rig.ask(n, request, 0)
            assert answer.error_code == 0
            rows = [row for topic in answer.topics for row in topic.partitions]
            assert [topic.error_code for topic in answer.topics] in ([0], [])
            if n != world.leader:
                assert (rows, flushed.partitions) == ([], [])
                continue
            [row], [done] = rows, flushed.partitions
            assert (done.error_code, done.highest_remote_offset) == (0, 2)
            assert (row.highest_remote_offset, row.state) == (2, "idle")


def test_the_status_says_which_operations_the_store_fails_and_since_when() -> None:
    world = World()
    world.produce(3)
    world.rig.pass_time(1_000)
    node = world.rig[world.leader].broker  # type: ignore[index]
    assert node.tier is not None
    problem = RemoteStorageError("503 SlowDown", key="k")
    node.tier.services.circuits.open("copy", problem, world.rig.now_ms)
    node.tier.services.circuits.overdue("a read", world.rig.now_ms - 10_000, world.rig.now_ms)
    world.rig.pass_time(5_000)
    answer = world.rig.ask(world.leader, TierStatusRequest(topics=None), 0)  # type: ignore[arg-type]
    (circuit,) = answer.circuits
    assert circuit.operation == "copy"
    assert circuit.open_ms >= 5_000
    assert "503 SlowDown" in circuit.problem
    assert answer.unanswered == "a read"
    assert answer.unanswered_ms >= 15_000
    (row,) = answer.topics[0].partitions
    assert (row.waiting_ms, row.problem_ms) == (-1, -1), "nothing waits"


def test_the_status_of_a_large_tier_is_reported_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: thousands of partitions do not hold the leader up. Method: a slice for each that it looks at."""
    world = World()
    world.produce(3)
    world.rig.pass_time(1_000)
    request = TierStatusRequest(topics=["t", "none"])
    before = world.rig.ask(world.leader, request, 0)  # type: ignore[arg-type]
    turns = world.rig[world.leader].broker.sliced_tasks  # type: ignore[index]
    assert "32001" not in turns.step_name()
    monkeypatch.setattr("firnline.tiered.status.SEGMENTS_PER_SLICE", 1)
    assert world.rig.ask(world.leader, request, 0) == before  # type: ignore[arg-type]
    assert "32001" in turns.step_name()


def test_what_expired_stays_away_whoever_leads() -> None:
    """T18, X42: the leader moves the log start, and its answers move that of its followers."""
    world = World(configs={"retention_bytes": str(4 * SIZE + 1000)})
    world.produce(12)
    world.until(lambda: world.led().log_start_offset >= 6)
    start = world.led().log_start_offset
    world.until(lambda: all(world.log(n).log_start_offset == start for n in BROKERS))
    kept = [s.base_offset for s in world.segments(world.lead_again())]
    assert all(base >= start for base in kept)
    leader = world.move_leader()
    assert world.led().log_start_offset >= start
    assert world.fetch(leader, 0).error_code == Code.OFFSET_OUT_OF_RANGE
    assert world.numbers(leader) == list(range(world.led().log_start_offset, 12))
    assert {s.broker_id for s in world.segments(leader)} <= set(BROKERS)


def test_copies_wait_while_brokers_change_listeners_one_by_one_and_go_on_by_themselves() -> None:
    """Whoever was restarted takes metadata at the new listener alone; others use the old one."""
    world = World(metadata_replicas=1)
    world.produce(4)
    world.drained()
    where = TopicIdPartition(world.led().topic_id, 0)
    leader = world.lead_again()
    number = metadata_partition_of(where, 2)
    state = world.rig[leader].broker.image.partition(REMOTE_LOG_METADATA_TOPIC, number)
    assert state is not None
    if state.leader == leader:
        world.rig[leader].kill()
        world.until(lambda: world.leader not in (None, state.leader))
        world.restart(state.leader)
        world.until(lambda: world.isr() == BROKERS)
        leader = world.lead_again()
    assert leader != state.leader
    producing = world.rig[state.leader].broker.producing
    old = producing._is_for_brokers
    storage, before = world.storages[leader], len(world.segments(leader))

    producing._is_for_brokers = lambda _: False
    world.produce(4)
    world.rig.pass_time(120_000)
    assert len(world.segments(leader)) == before
    world.produce(4)
    producing._is_for_brokers = old
    # Between the two records of a copy, too.
    copy = storage.copy_segment

    def copied(segment: RemoteSegment, data: Any) -> Any:
        producing._is_for_brokers = lambda _: False
        return copy(segment, data)

    storage.copy_segment = copied  # type: ignore[method-assign]
    world.until(lambda: not producing._is_for_brokers("PLAINTEXT"), 120_000)
    world.rig.pass_time(60_000)
    assert len(world.segments(leader)) == before
    storage.copy_segment = copy  # type: ignore[method-assign]
    producing._is_for_brokers = old
    world.drained()
    assert len(world.segments(leader)) == len(world.logs_in_the_store()) > before
    assert world.numbers(leader) == list(range(world.count))


def test_a_deleted_topic_leaves_nothing_in_the_tier_of_a_cluster() -> None:
    """T26, T54: whoever leads the metadata partition removes it, a replica of the topic or not."""
    world = World(metadata_replicas=1)
    world.produce(8)
    world.drained()
    assert world.logs_in_the_store()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    assert world.rig.ask(4, request, 6).responses[0].error_code == 0
    world.until(lambda: not world.logs_in_the_store(), 600_000)


def test_metadata_that_an_old_disk_took_back_is_noticed_by_who_had_read_it() -> None:
    """One replica of the metadata, an old copy of it put back, and it grew again: only epochs tell."""
    world = World(metadata_replicas=1)
    world.produce(4)
    world.drained()
    where = TopicIdPartition(world.led().topic_id, 0)
    number = metadata_partition_of(where, 2)

    def holder() -> int:
        state = world.rig[world.living[0]].broker.image.partition(REMOTE_LOG_METADATA_TOPIC, number)
        assert state is not None
        return state.replicas[0]

    keeper = holder()
    if world.leader == keeper:
        world.rig[keeper].kill()
        world.until(lambda: world.leader not in (None, keeper))
        world.restart(keeper)
        world.until(lambda: world.isr() == BROKERS)
    leader = world.lead_again()
    assert leader != keeper
    old_end = (
        world.rig[keeper].broker.partitions[REMOTE_LOG_METADATA_TOPIC, number].log.log_end_offset
    )
    world.produce(4)
    world.drained()
    world.until(lambda: len(world.segments(leader)) >= 3)
    kept = world.logs_in_the_store()
    member = world.rig[keeper]
    member.kill()
    put_back(member.fs, f"/data/{REMOTE_LOG_METADATA_TOPIC}-{number}", old_end)
    member.start()
    world.until(lambda: any("records were lost" in line for line in world.rig[leader].warnings))
    world.until(
        lambda: any("metadata does not know" in line for line in world.rig[leader].warnings)
    )
    assert world.log(leader).log_start_offset == 0
    assert world.fetch(leader, 0).error_code == 0
    assert set(kept) <= set(world.logs_in_the_store())
    tier = world.rig[leader].broker.tier
    assert tier is not None
    assert tier.status()[0].unexplained_segments > 0


def put_back(fs: Any, path: str, end_offset: int) -> None:
    """Leave of a log what it was when it ended there."""
    topic, _, number = path.rpartition("/")[2].rpartition("-")
    log = open_log(
        fs, path, TopicPartition(topic, int(number)), topic_id=read_partition_metadata(fs, path) or bytes(16),
        config=TopicConfig(), now_ms=0,
    )  # fmt: skip
    log.truncate_to(end_offset)
    log.sync_now()
    log.close()


def test_a_leader_with_a_damaged_segment_copies_none_of_it_and_another_leads() -> None:
    """Bit rot would have reached the tier, and the good replicas would have dropped theirs."""
    w = World()
    w.produce(2)
    rotten = w.lead_again()
    assert w.isr() == BROKERS
    path = f"{w.log(rotten).path}/{0:020}.log"
    file = w.rig[rotten].fs.open(path)
    data = bytearray(file.read(0, file.size()))
    data[len(data) // 2] ^= 1
    file.truncate(0)
    file.append(data)
    file.close()
    w.produce(3)
    w.until(lambda: w.leader not in (None, rotten))
    w.until(lambda: w.isr() == BROKERS)
    w.drained()
    assert w.numbers(w.lead_again()) == list(range(5))
    status = w.rig[rotten].broker.tier
    assert status is not None
    assert status.services.counters.damaged_segments == 1
    reported = [line for line in w.rig[rotten].warnings if "not copied to the tier" in line]
    assert len(reported) == 1
    assert "t-0" in reported[0]
