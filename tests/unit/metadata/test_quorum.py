"""The write path: newest at once, committed after the sync, published before anybody is answered."""

from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.features import record_version
from firnline.metadata.image import ClusterImage, ConfigResource
from firnline.metadata.quorum import RECORDS_PER_BATCH_MAX, MetadataQuorum
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_file import Snapshot
from firnline.protocol.schema import Message
from firnline.records.batch import headers
from firnline.records.record import records
from tests.worlds.effects import kept
from tests.worlds.quorum import BOOTSTRAP, Loop, MemoryLog, RecordingObserver, make_quorum

IDLE = ("metadata", "idle")


def setting(value: str, name: str = "t") -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value=value)


def started(log: MemoryLog, **options: Any) -> tuple[MetadataQuorum, Loop]:
    quorum, loop = make_quorum(log, **options), Loop()
    loop.run(quorum.start(loop.now_ms))
    loop.sync()
    return quorum, loop


def written(log: MemoryLog, batch: int) -> list[Message]:
    data = log.batches[batch]
    (header,) = headers(data)
    return [r.decode(row.value or b"") for row in records(data, header)]


def test_the_first_leader_writes_the_bootstrap_records_in_one_transaction() -> None:
    """Q12, as Kafka does: one batch, so that half of them is never seen."""
    log = MemoryLog()
    quorum, _ = started(log)
    assert written(log, 1) == [
        r.BeginTransactionRecord(name="Bootstrap records"),
        *BOOTSTRAP,
        r.EndTransactionRecord(),
    ]
    assert dict(quorum.image.features) == {"metadata.version": 30}


def test_a_cluster_from_before_transactions_is_bootstrapped_without_one() -> None:
    log = MemoryLog([r.FeatureLevelRecord(name="metadata.version", feature_level=12)])
    started(log)
    assert [type(record) for record in written(log, 1)] == [r.FeatureLevelRecord]


def test_bootstrap_happens_once_in_a_clusters_life() -> None:
    log = MemoryLog()
    started(log)
    log.bootstrap = [r.FeatureLevelRecord(name="metadata.version", feature_level=29)]
    quorum, _ = started(log)
    assert len(log.batches) == 3  # leader change, bootstrap, leader change
    assert quorum.image.metadata_version == 30


def test_ready_is_reported_once_the_bootstrap_is_committed_and_published() -> None:
    log, loop, seen, reported = MemoryLog(), Loop(), [], RecordingObserver()
    quorum = make_quorum(log, observer=reported)

    def ready(now_ms: int) -> Effects:
        seen.append(quorum.image.metadata_version)
        return []

    reported.on_active = ready
    loop.run(quorum.start(1))
    assert seen == []
    loop.sync()
    assert seen == [30]


def test_a_write_is_newest_at_once_and_committed_after_the_sync() -> None:
    log = MemoryLog()
    quorum, loop = started(log)
    answers: list[Any] = []
    loop.run(quorum.write(ControllerResult([setting("1")], "ok"), kept(answers), 1))
    assert quorum.newest.topic_config_overrides("t")["retention.ms"] == "1"
    assert not quorum.image.topic_config_overrides("t")
    assert answers == []
    loop.sync()
    assert quorum.image.topic_config_overrides("t")["retention.ms"] == "1"
    assert answers == ["ok"]


def test_publishers_run_before_the_writer_is_answered_and_their_effects_come_first() -> None:
    """Whoever is told that a topic exists must find this node leading it."""
    log = MemoryLog()
    reported = RecordingObserver()
    quorum, loop = started(log, observer=reported)
    order: list[str] = []

    def publisher(delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        assert quorum.image is image
        assert delta.after is image
        order.append(f"published {image.topic_config_overrides('t')['retention.ms']}")
        return ["from the publisher"]  # type: ignore[list-item]

    def then(response: str | KafkaError, now_ms: int) -> Effects:
        order.append(f"answered {response}")
        return ["from the writer"]  # type: ignore[list-item]

    reported.publishers.append(publisher)
    for value in ("1", "2"):
        loop.run(quorum.write(ControllerResult([setting(value)], value), then, 1))
    loop.sync()
    assert order == ["published 1", "answered 1", "published 2", "answered 2"]
    assert loop.others == ["from the publisher", "from the writer"] * 2


def test_one_sync_commits_all_that_was_written_before_it() -> None:
    log = MemoryLog()
    quorum, loop = started(log)
    answers: list[Any] = []
    for value in ("1", "2", "3"):
        loop.run(quorum.write(ControllerResult([setting(value)], value), kept(answers), 1))
    last = loop.flushes[-1]
    loop.run(last.then(None, 2))
    assert answers == ["1", "2", "3"]
    loop.sync()
    assert answers == ["1", "2", "3"]


def test_a_decision_without_records_waits_for_the_writes_it_may_have_relied_on() -> None:
    """ "The topic exists" must not be said of a topic that a crash can still take away."""
    log = MemoryLog()
    quorum, loop = started(log)
    answers: list[Any] = []
    assert quorum.write(ControllerResult([], "at once"), kept(answers), 1) == []
    assert answers == ["at once"]
    loop.run(quorum.write(ControllerResult([setting("1")], "write"), kept(answers), 1))
    loop.run(quorum.write(ControllerResult([], "read"), kept(answers), 1))
    assert answers == ["at once"]
    loop.sync()
    assert answers == ["at once", "write", "read"]


def test_a_node_that_does_not_lead_refuses_and_writes_nothing() -> None:
    log = MemoryLog()
    quorum, loop = started(log)
    loop.run(quorum.stop(1))
    answers: list[Any] = []
    loop.run(quorum.write(ControllerResult([setting("1")], "no"), kept(answers), 1))
    (refusal,) = answers
    assert isinstance(refusal, KafkaError)
    assert refusal.code == Code.NOT_CONTROLLER
    assert len(log.batches) == 2
    assert not quorum.newest.topic_config_overrides("t")


def test_an_atomic_change_is_one_batch_or_refused() -> None:
    log = MemoryLog()
    quorum, loop = started(log)
    answers: list[Any] = []
    many = [setting("1", f"t{n}") for n in range(RECORDS_PER_BATCH_MAX + 1)]
    loop.run(quorum.write(ControllerResult(many, "no"), kept(answers), 1))
    assert answers[0].code == Code.POLICY_VIOLATION
    assert len(log.batches) == 2
    loop.run(quorum.write(ControllerResult(many, "yes", is_atomic=False), kept(answers), 1))
    loop.sync()
    assert answers[1] == "yes"
    assert [next(headers(batch)).record_count for batch in log.batches[2:]] == [
        RECORDS_PER_BATCH_MAX,
        1,
    ]


def test_a_refused_batch_leaves_the_newest_image_alone() -> None:
    log = MemoryLog()
    quorum, loop = started(log)
    answers: list[Any] = []
    huge = [setting(f"{n}{'x' * 30_000}", "a") for n in range(300)]
    loop.run(quorum.write(ControllerResult(huge, "no"), kept(answers), 1))
    assert answers[0].code == Code.RECORD_LIST_TOO_LARGE
    assert not quorum.newest.configs


def test_what_was_answered_is_there_after_a_crash_and_what_was_not_may_be_gone() -> None:
    log = MemoryLog()
    quorum, loop = started(log)
    answers: list[Any] = []
    loop.run(quorum.write(ControllerResult([setting("1", "kept")], "kept"), kept(answers), 1))
    loop.sync()
    loop.run(quorum.write(ControllerResult([setting("1", "lost")], "lost"), kept(answers), 1))
    log.crash()
    again, _ = started(log)
    assert answers == ["kept"]
    assert again.image.topic_config_overrides("kept")
    assert not again.image.topic_config_overrides("lost")
    assert again.epoch == 2


def test_a_restart_publishes_everything_as_one_difference() -> None:
    log = MemoryLog()
    quorum, loop = started(log)
    for value in ("1", "2"):
        loop.run(quorum.write(ControllerResult([setting(value)], ""), kept([]), 1))
    loop.sync()
    reported, seen = RecordingObserver(), []
    again = make_quorum(log, observer=reported)
    reported.publishers.append(lambda delta, image, now_ms: seen.append(delta) or [])
    loop.run(again.start(1))
    assert seen == []
    loop.sync()
    (delta,) = seen
    assert delta.configs == (ConfigResource(2, "t"),)
    assert delta.features == ("metadata.version",)
    assert delta.after.offset == 6  # that of the new epoch's first record


def test_a_quiet_log_gets_a_no_op_in_each_interval_and_a_busy_one_none() -> None:
    """metadata.max.idle.interval.ms: 500 by default."""
    log = MemoryLog()
    quorum, loop = started(log)
    loop.fire(IDLE)  # the bootstrap was written in this interval
    assert len(log.batches) == 2
    for _ in range(3):
        loop.fire(IDLE)
        loop.sync()
    assert loop.now_ms == 3000
    assert [type(written(log, n)[0]) for n in (2, 3, 4)] == [r.NoOpRecord] * 3
    loop.run(quorum.write(ControllerResult([setting("1")], ""), kept([]), loop.now_ms))
    loop.fire(IDLE)
    assert len(log.batches) == 6
    idle = loop.timers[IDLE]
    loop.run(quorum.stop(loop.now_ms))
    assert IDLE not in loop.timers
    assert idle.then(loop.now_ms) == []
    assert len(log.batches) == 6


def test_the_no_op_interval_0_is_off() -> None:
    _, loop = started(MemoryLog(), idle_interval_ms=0)
    assert ("metadata", "idle") not in loop.timers


def test_a_transaction_left_open_by_the_last_leader_is_aborted_and_never_seen() -> None:
    """KIP-868."""
    log = MemoryLog()
    quorum, _ = started(log)
    values = [
        r.encode(record, record_version(record, 30))
        for record in (r.BeginTransactionRecord(name="x"), setting("1", "half"))
    ]
    outcome = quorum.raft.propose(values, epoch=1, now_ms=1)
    assert not isinstance(outcome, KafkaError)
    again, _ = started(log)
    assert isinstance(written(log, 4)[0], r.AbortTransactionRecord)
    assert not again.image.topic_config_overrides("half")
    third, _ = started(log)
    assert not third.image.topic_config_overrides("half")
    assert len(log.batches) == 6  # nothing to abort any more


def test_a_cluster_that_runs_more_than_we_act_on_is_refused_before_anything_is_written() -> None:
    """I33: with the command that helps."""
    log = MemoryLog()
    quorum, _ = started(log)
    group = r.FeatureLevelRecord(name="group.version", feature_level=1)
    outcome = quorum.raft.propose([r.encode(group, 0)], epoch=1, now_ms=1)
    assert not isinstance(outcome, KafkaError)
    batches, saved = list(log.batches), list(log.saved)
    with pytest.raises(
        ConfigError, match=r"group\.version 1.*downgrade --feature group\.version=0.* offset=4\b"
    ):
        make_quorum(log).start(1)
    assert log.batches == batches
    assert log.saved == saved


def test_bootstrap_records_of_a_feature_we_do_not_act_on_are_refused_too() -> None:
    log = MemoryLog([*BOOTSTRAP, r.FeatureLevelRecord(name="share.version", feature_level=1)])
    with pytest.raises(ConfigError, match=r"share\.version"):
        make_quorum(log).start(1)
    assert log.batches == []


def test_a_log_that_continues_a_snapshot_is_loaded_with_it() -> None:
    """Q39: the snapshot first, then what follows its end offset."""
    log = MemoryLog()
    log.snapshot = (40, 3, Snapshot(0, [*BOOTSTRAP, setting("1")], 0))
    quorum, _ = started(log)
    assert quorum.epoch == 4
    assert quorum.image.topic_config_overrides("t")["retention.ms"] == "1"
    assert quorum.image.metadata_version == 30
    assert next(headers(log.batches[0])).base_offset == 40


def test_a_log_whose_beginning_is_nowhere_is_refused() -> None:
    """Q43."""
    log = MemoryLog()
    started(log)
    del log.batches[0]
    with pytest.raises(StorageError, match="starts after 0"):
        make_quorum(log).start(1)


def test_a_snapshot_with_dynamic_voters_is_refused() -> None:
    log = MemoryLog()
    log.snapshot = (40, 3, Snapshot(0, list(BOOTSTRAP), 1))
    with pytest.raises(ConfigError, match="dynamic voters"):
        make_quorum(log).start(1)


def test_records_are_written_at_the_version_the_cluster_runs() -> None:
    """A node of an older release must be able to read them."""
    for level, register, partition in ((7, 1, 0), (8, 2, 0), (17, 3, 1), (23, 3, 2), (30, 4, 2)):
        assert record_version(r.RegisterBrokerRecord(), level) == register
        assert record_version(r.PartitionRecord(), level) == partition
        assert record_version(r.PartitionChangeRecord(), level) == partition
        assert record_version(r.TopicRecord(), level) == 0
    change = r.BrokerRegistrationChangeRecord(fenced=1)
    assert record_version(change, 30) == 0
    change.in_controlled_shutdown = 1
    assert record_version(change, 30) == 1
    change.log_dirs = (b"d" * 16,)
    assert record_version(change, 30) == 2
    change.cordoned_log_dirs = ()
    assert record_version(change, 30) == 3


def test_what_a_record_of_an_older_version_leaves_out_its_writer_does_not_know_either() -> None:
    """Else it decides by what no other controller has, and its successor by something else (rel-Q13)."""
    log = MemoryLog([r.FeatureLevelRecord(name="metadata.version", feature_level=12)])
    quorum, loop = started(log)
    record = r.RegisterBrokerRecord(broker_id=1, broker_epoch=5, log_dirs=[bytes(15) + b"\x07"])
    loop.run(quorum.write(ControllerResult([record], None), kept([]), 1))
    assert quorum.newest.brokers[1].log_dirs == ()
    loop.sync()
    again, _ = started(log)
    assert again.image.brokers == quorum.image.brokers
