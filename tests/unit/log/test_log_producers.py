"""Producers of one log: repeats are not written twice, and open transactions hold what may be read."""

import gc
import random
from unittest import mock

import pytest
from crc32c import crc32c

from firnline.base.errors import Code, StorageError
from firnline.formats.producer_snapshot import SnapshotEntry, decode_snapshot, encode_snapshot
from firnline.log import producer_state
from firnline.log.log import Log
from firnline.log.producer_state import (
    Producer,
    ProducerStates,
    ProducerTable,
)
from firnline.sim.disk import CrashableFs
from tests.worlds.log import (
    ABORT,
    COMMIT,
    NOW,
    append,
    batch,
    end_txn,
    found_headers,
    has_open_transaction,
    newest_snapshot,
    opened,
    refused,
    small,
)

# -- how many ------------------------------------------------------------------------------------


def test_a_flood_of_producer_ids_is_forgotten_and_not_the_producer_that_goes_on(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are the client's own words: each one cost the partition more than a kilobyte for a day."""
    monkeypatch.setattr(producer_state, "PARTITION_PRODUCERS_MAX", 50)
    append(log, batch("open", pid=8, seq=0, is_transactional=True))
    for number in range(1_000):
        append(log, batch("good", pid=7, seq=number))
        append(log, batch("flood", pid=1_000 + number, seq=0))
        assert len(log.producers) <= 50
    assert refused(log, batch("gap", pid=7, seq=1_001)).code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert has_open_transaction(log, 8)
    # Whoever was forgotten goes on where it was.
    assert log.producers.get(1_000) is None
    assert log.producers.table is not None
    assert log.producers.table.forgotten == 2 + 1_000 - 50
    append(log, batch("forgotten", pid=1_000, seq=1))


class Flooded:
    """A node's partitions, each a log of its own directory, and one table of their producers."""

    def __init__(self, producers_max: int) -> None:
        self.table = ProducerTable(producers_max)
        self.disks: list[CrashableFs] = []
        self.logs: list[Log] = []
        self.ids = 0

    def log(self) -> Log:
        self.disks.append(CrashableFs())
        self.logs.append(opened(self.disks[-1], producers=self.table))
        return self.logs[-1]

    def flood(self, log: Log, count: int) -> None:
        for _ in range(count):
            self.ids += 1
            append(log, batch("x", pid=self.ids, seq=0))

    @property
    def held(self) -> int:
        return sum(len(log.producers) for log in self.logs)


@pytest.fixture
def flooded(monkeypatch: pytest.MonkeyPatch) -> Flooded:
    monkeypatch.setattr(producer_state, "_COUNTED_AFTER", 10)
    return Flooded(100)


def test_a_flood_of_producer_ids_over_many_partitions_holds_the_bound_of_the_node(
    flooded: Flooded,
) -> None:
    """Each of 1,000 partitions may remember 20,000: that was 24 GB."""
    for _ in range(20):
        flooded.flood(flooded.log(), 50)
    assert flooded.held == 100
    assert flooded.table.forgotten == 19 * 50 - 50
    assert all(log.producers for log in flooded.logs)


def test_a_partition_that_took_all_of_the_table_leaves_the_others_their_share(
    flooded: Flooded,
) -> None:
    greedy, modest = flooded.log(), flooded.log()
    flooded.flood(greedy, 300)
    for seq in range(20):
        for pid in range(10_000, 10_040):
            append(modest, batch("good", pid=pid, seq=seq))
        flooded.flood(greedy, 20)
    assert len(modest.producers) == 40
    assert len(greedy.producers) == 60
    assert (
        refused(modest, batch("gap", pid=10_000, seq=21)).code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def test_what_is_forgotten_expired_or_deleted_makes_room_again(flooded: Flooded) -> None:
    """A count that went wrong once would make partitions forget for as long as the node runs."""
    flooded.flood(flooded.log(), 200)
    flooded.logs.clear()
    gc.collect()
    log = flooded.log()
    flooded.flood(log, 60)
    assert len(log.producers) >= 50  # what came before the count was taken for one too many
    log.producers.expire(NOW + 1_000, 1_000)
    flooded.flood(log, 90)
    assert len(log.producers) == 90


def test_nobody_is_forgotten_where_others_have_just_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two counts, too: a producer that is forgotten can write a batch twice."""
    monkeypatch.setattr(producer_state, "_COUNTED_AFTER", 10)
    flooded = Flooded(5)
    log = flooded.log()
    flooded.flood(log, 10)
    assert (len(log.producers), flooded.table.forgotten) == (5, 5)
    assert log.producers.expire(NOW + 1_000, 1_000) == 5
    flooded.flood(log, 5)
    assert (len(log.producers), flooded.table.forgotten) == (5, 5)


def test_transactions_that_stay_open_do_not_keep_others_from_being_forgotten(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same few were looked at each time, all of them busy, and the bound held nobody."""
    monkeypatch.setattr(producer_state, "PARTITION_PRODUCERS_MAX", 50)
    for pid in range(producer_state._LOOKED_AT):
        append(log, batch("open", pid=pid, seq=0, is_transactional=True))
    for pid in range(1_000, 1_200):
        append(log, batch("flood", pid=pid, seq=0))
    assert len(log.producers) == 50, "what passed the bound meanwhile went with the next ones"
    assert all(has_open_transaction(log, pid) for pid in range(16))


def test_a_start_after_a_crash_or_a_truncation_does_not_pass_the_bound(flooded: Flooded) -> None:
    """A log that is opened replays what was written, and remembers what it may."""
    for _ in range(10):
        flooded.flood(flooded.log(), 40)
    assert flooded.held == 100
    flooded.table = ProducerTable(100)
    flooded.logs = [opened(disk.kill(), producers=flooded.table) for disk in flooded.disks]
    assert flooded.held == 100
    for log in flooded.logs:
        log.truncate_to(35)  # what it remembers is counted beside what it is about to remember
    assert 80 <= flooded.held <= 100
    flooded.flood(flooded.logs[0], 100)
    assert flooded.held == 100


# -- idempotence -----------------------------------------------------------------------------------


def test_a_repeat_is_answered_with_the_offsets_of_the_first_copy(log: Log) -> None:
    append(log, batch("x"))
    first = append(log, batch("a", "b", pid=7, seq=0))
    for seq in range(2, 6):
        append(log, batch("c", pid=7, seq=seq))
    end = log.log_end_offset
    again = append(log, batch("a", "b", pid=7, seq=0))
    assert (
        (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (1, 2)
    )
    assert log.log_end_offset == end
    append(log, batch("d", pid=7, seq=6))
    assert refused(log, batch("a", "b", pid=7, seq=0)).code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0))
    assert refused(log, batch("c", pid=7, seq=2)).code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch("b", pid=7, seq=1))
    partly = batch("b", "c", pid=7, seq=1)
    assert refused(log, partly).code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0))
    again = refused(log, batch("b", pid=7, epoch=1, seq=1))
    assert again.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch("b", pid=7, epoch=1, seq=0))
    assert refused(log, batch("a", pid=7, seq=0)).code == Code.INVALID_PRODUCER_EPOCH
    assert refused(log, batch("c", pid=7, seq=1)).code == Code.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_to_zero(log: Log) -> None:
    last = 2**31 - 1
    append(log, batch("a", "b", pid=7, seq=last))
    append(log, batch("c", pid=7, seq=1))
    assert append(log, batch("a", "b", pid=7, seq=last)).base_offset == 0


def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    """Its records may have been deleted by retention; 4.3.1 takes any sequence then."""
    append(log, batch("a", pid=7, seq=41))
    append(log, batch("b", pid=7, seq=42))


def test_a_repeat_under_log_append_time_has_the_first_copys_time(log: Log) -> None:
    log.config = small(message_timestamp_type="LogAppendTime")
    append(log, batch("a", pid=7, seq=0), now_ms=NOW)
    assert append(log, batch("a", pid=7, seq=0), now_ms=NOW + 50).log_append_time_ms == NOW


# -- transactions ----------------------------------------------------------------------------------


def test_an_open_transaction_holds_the_last_stable_offset(log: Log) -> None:
    append(log, batch("x"))
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    append(log, batch("b", pid=8, seq=0, is_transactional=True))
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 1
    assert has_open_transaction(log, 7)
    end_txn(log, 7, COMMIT)
    assert log.last_stable_offset == 1, "the marker is above the high watermark"
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 2
    end_txn(log, 8, ABORT)
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 5
    assert [tuple(t) for t in log.aborted_transactions(0, 5)] == [(8, 2, 4, 5)]
    assert log.aborted_transactions(0, 2) == []


def test_the_index_entry_of_an_abort_names_the_older_open_transaction(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    append(log, batch("b", pid=8, seq=0, is_transactional=True))
    end_txn(log, 8, ABORT)
    end_txn(log, 7, ABORT)
    assert [tuple(t) for t in log.aborted_transactions(0, 9)] == [(8, 1, 2, 0), (7, 0, 3, 4)]


def test_a_write_outside_the_open_transaction_is_refused(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    assert refused(log, batch("b", pid=7, seq=1)).code == Code.INVALID_TXN_STATE


def test_an_old_coordinator_cannot_end_a_transaction(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    end_txn(log, 7, COMMIT, coordinator_epoch=5)
    append(log, batch("b", pid=7, seq=1, is_transactional=True))
    from tests.worlds.log import marker

    late = refused(log, marker(7, ABORT, coordinator_epoch=4), origin="coordinator")
    assert late.code == Code.TRANSACTION_COORDINATOR_FENCED
    zombie = refused(log, marker(7, ABORT, epoch=-1, coordinator_epoch=5), origin="coordinator")
    assert zombie.code == Code.INVALID_PRODUCER_EPOCH


def test_a_producer_whose_transaction_has_just_ended_is_not_taken_for_idle(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0, is_transactional=True, time_ms=NOW - 10_000))
    end_txn(log, 7, COMMIT)
    assert log.producers.expire(NOW + 4_000, 5_000) == 0
    assert log.producers.expire(NOW + 5_000, 5_000) == 1


def test_the_oldest_transaction_holds_what_may_be_read_after_a_restart_too() -> None:
    fs = CrashableFs()
    log = opened(fs)
    for pid in (8, 7):
        append(log, batch("a", pid=pid, seq=0, is_transactional=True))
    log.advance_high_watermark(2)
    log.close()
    again = opened(fs, was_clean=True, high_watermark=2)
    assert again.last_stable_offset == 0
    end_txn(again, 8, COMMIT)
    again.advance_high_watermark(3)
    assert again.last_stable_offset == 1


def test_a_transaction_of_a_producer_without_a_record_here_can_end(log: Log) -> None:
    """It added the partition and then wrote nothing, or its records have expired."""
    assert end_txn(log, 7, ABORT).base_offset == 0
    assert log.aborted_transactions(0, 1) == []
    assert log.last_stable_offset == 0 == log.high_watermark


def test_a_marker_bumps_the_epoch_as_kip_890_wants(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    end_txn(log, 7, COMMIT, epoch=1)
    assert refused(log, batch("b", pid=7, seq=1)).code == Code.INVALID_PRODUCER_EPOCH
    append(log, batch("b", pid=7, epoch=1, seq=0, is_transactional=True))


def test_a_client_may_not_write_control_records(log: Log) -> None:
    assert refused(log, batch("a", is_control=True)).code == Code.INVALID_RECORD


def test_coordinators_write_several_batches_at_once_and_no_sequences(log: Log) -> None:
    one = batch("a", producer_id=7, producer_epoch=0, is_transactional=True)
    two = batch("b", producer_id=7, producer_epoch=0, is_transactional=True)
    done = append(log, one + two, origin="coordinator", epoch=2)
    assert (done.base_offset, done.last_offset) == (0, 1)
    assert [h.leader_epoch for h in found_headers(log)] == [2, 2]
    again = append(log, two, origin="coordinator", epoch=2)
    assert again.base_offset == 2, "no sequence, no repeat"


def test_a_snapshot_that_counts_other_entries_than_it_has_is_not_believed() -> None:
    """Whoever wrote it gave it the right CRC: half of the producers would begin anew, unnoticed."""
    complete = encode_snapshot([SnapshotEntry(pid, 0, 4, 9, 0, NOW, -1, -1) for pid in (7, 8)])
    assert len(decode_snapshot(complete)) == 2
    body = (3).to_bytes(4, "big") + complete[10:]
    with pytest.raises(StorageError, match="does not fit its entries"):
        decode_snapshot(complete[:2] + crc32c(body).to_bytes(4, "big") + body)


def test_a_snapshot_says_what_each_producer_did_last_whenever_it_is_taken(log: Log) -> None:
    """What was packed for the one before is used again, but for those who wrote since."""
    states, chance, sequences = log.producers, random.Random(1), dict[int, int]()
    for _ in range(400):
        pid = chance.randrange(6)
        if has_open_transaction(log, pid):
            end_txn(log, pid, chance.choice([ABORT, COMMIT]))
        else:
            sequences[pid] = seq = sequences.get(pid, -1) + 1
            is_transactional = pid > 2
            append(log, batch("v", pid=pid, seq=seq, is_transactional=is_transactional))
        if chance.random() < 0.3:
            assert states.snapshot() == encode_snapshot(states.entries())
    append(log, batch("v", pid=1, epoch=1, seq=0))
    assert states.snapshot() == encode_snapshot(states.entries())
    states.load(states.entries(), log.log_end_offset)
    assert states.snapshot() == encode_snapshot(states.entries())


def test_who_wrote_nothing_costs_a_roll_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 100,000 idle producers was made an entry and packed whenever a segment was closed: 110 ms."""
    for pid in range(300):
        append(log, batch("v", pid=pid, seq=0))
    log.roll(NOW)
    packed, entry = 0, Producer.entry

    def counted(producer: Producer) -> SnapshotEntry:
        nonlocal packed
        packed += 1
        return entry(producer)

    monkeypatch.setattr(Producer, "entry", counted)
    append(log, batch("v", pid=7, seq=1))
    log.roll(NOW)
    assert packed == 1
    monkeypatch.undo()
    found = newest_snapshot(log._fs, upto_offset=log.log_end_offset)
    assert found == (log.log_end_offset, log.producers.entries())


def test_a_snapshot_that_no_descriptor_is_left_for_is_not_taken_for_damaged(log: Log) -> None:
    """What it says may be in the log no more: producers would be forgotten for good."""
    append(log, batch("a", pid=7, seq=0))
    log.close()
    fs = log._fs
    assert isinstance(fs, CrashableFs)
    fs.fail("open", ".snapshot", "EMFILE")
    assert newest_snapshot(fs, upto_offset=log.log_end_offset) is None
    found = newest_snapshot(fs, upto_offset=log.log_end_offset)
    assert found is not None
    assert found[0] == 1


def test_no_append_packs_the_entries_of_all_producers(log: Log) -> None:
    """The one that rolled waited for 20,000 of them: 42 ms. Nor does the first one after a start."""
    packed = [0]

    def count(producer: Producer) -> bytes:
        packed[0] += 1
        return pack(producer)

    pack, longest = Producer.pack, 0
    with mock.patch.object(Producer, "pack", count):
        for seq in range(2):
            for pid in range(2_000):
                before = packed[0]
                append(log, batch("x", pid=pid, seq=seq))
                longest = max(longest, packed[0] - before)
        before = packed[0]
        data = log.producers.snapshot()
        assert max(longest, packed[0] - before) <= 500
        assert decode_snapshot(data) == log.producers.entries()
        loaded = ProducerStates()
        loaded.load(decode_snapshot(data), log.log_end_offset)
        before = packed[0]
        assert loaded.snapshot() == data
        assert packed[0] == before
