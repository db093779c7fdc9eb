"""Every guard whose loss must be noticed, and by whom. Names are those of traps (X) and invariants (rel-)."""

from tests.mutants.clusters import CLUSTERS
from tests.mutants.compaction import COMPACTION
from tests.mutants.operations import OPERATIONS
from tests.mutants.patch import Mutant
from tests.mutants.races import RACES
from tests.mutants.replicas import REPLICAS
from tests.mutants.tier import TIER
from tests.mutants.tier_speed import TIER_SPEED
from tests.mutants.tiered_clusters import TIERED_CLUSTERS

_ELECTING = "tests/unit/raft/test_elections.py::"
_SAVING = "tests/unit/raft/test_saving.py::"
_EPOCHS = "tests/unit/raft/test_epochs.py::"
_LEADING = "tests/unit/raft/test_leading.py::"
_PLACES = "tests/unit/raft/test_fetch_rules.py::"
_CUTTING = "tests/unit/raft/test_cutting.py::"
_TRANSFER = "tests/unit/raft/test_snapshot_transfer.py::"
_SERVING = "tests/unit/raft/test_snapshot_serve.py::"
_RULES = "tests/unit/raft/test_snapshot_rules.py::"
_DISK = "tests/unit/metadata/test_meta_log_snapshots.py::"
_EMITTING = "tests/unit/metadata/test_snapshotter.py::"
_FACADE = "tests/unit/metadata/test_quorum_roles.py::"
_TRANSACTIONS = "tests/unit/metadata/test_transactions.py::"
# A cluster in which everything happens often.
_BUSY = {
    "voters": 3,
    "observers": 1,
    "fault_gap_us": (200_000, 1_500_000),
    "election_timeout_ms": 300,
    "fetch_timeout_ms": 600,
}
_ELECTIONS = {
    **_BUSY,
    "fault_kinds": ("kill", "power", "storm", "isolate", "split", "cut", "pause", "power-all"),
}
_SLOW = {**_ELECTIONS, "election_timeout_ms": 1000, "fetch_timeout_ms": 2000}
_SNAPSHOTS = {
    **_BUSY,
    "snapshot_bytes": 5_000,
    "retention_bytes": 9_000,
    "cleaning_interval_ms": 500,
    "delete_delay_ms": 0,
    "start_offset_lag_ms": 0,
    "min_changed_percent": 0,
    "fetch_snapshot_max_bytes": 333,
}

MUTANTS = (
    *REPLICAS,
    *CLUSTERS,
    *COMPACTION,
    *RACES,
    *TIER,
    *TIER_SPEED,
    *TIERED_CLUSTERS,
    *OPERATIONS,
    # ------------------------------------------------------------------------------ elections
    Mutant(
        "rel-Q1: half of the voters is no majority",
        "raft.election:Ballot.is_won",
        "> len(self._voter_ids) // 2",
        ">= len(self._voter_ids) // 2",
        seeds=(1, 2),
        seconds=20,
        options=_ELECTIONS,
        invariants=("rel-Q1", "rel-Q3", "rel-Q4", "rel-X1"),
    ),
    Mutant(
        "rel-Q2: one vote in an epoch",
        "raft.election:Election._may_grant",
        "return self._is_same_candidate(partition)",
        "return is_up_to_date",
        seeds=(3, 1, 2, 4),
        seconds=30,
        options=_ELECTIONS,
        invariants=("rel-Q2", "rel-P2"),
    ),
    Mutant(
        "rel-P2: the vote is saved before it is told",
        "raft.calls:Gate._settle",
        "if state == self._saved:",
        "if state.epoch == self._saved.epoch:",
        seeds=(1,),
        seconds=10,
        options=_ELECTIONS,
        invariants=("rel-P2",),
    ),
    Mutant(
        "rel-P2, on the way: no answer leaves before the disk has the vote",
        "raft.calls:Gate._settle",
        "local = [effect for effect in effects if not isinstance(effect, Reply | Send)]",
        "local, self._held = effects, []",
        seeds=(1,),
        seconds=10,
        options=_ELECTIONS,
        invariants=("rel-P2",),
    ),
    Mutant(
        "rel-P2, on the way: no request leaves before the disk has the vote",
        "raft.calls:Gate._settle",
        "local = [effect for effect in effects if not isinstance(effect, Reply | Send)]",
        "local = [effect for effect in effects if not isinstance(effect, Reply)]",
        tests=(_SAVING + "test_no_vote_is_asked_for_before_the_own_one_is_on_disk",),
    ),
    Mutant(
        "rel-P2, on the way: nothing happens in a state that may be lost",
        "raft.calls:Gate.take",
        "return [] if self.is_saving or self._is_next_set else self._next(now_ms)",
        "return self._waiting.pop()(now_ms)",
        seeds=(1, 2, 3),
        seconds=20,
        options=_ELECTIONS,
        invariants=("rel-P2", "rel-Q2"),
    ),
    Mutant(
        "X1: no record of an epoch is written before the disk has that this node leads it",
        "raft.node:RaftNode.role_entered",
        "quorum.gate.once_saved(self._claim)",
        "effects += self._claim(now_ms)",
        tests=(_SAVING + "test_no_record_is_written_before_the_leadership_is_on_disk",),
    ),
    Mutant(
        "rel-P2: what is saved is synced before it has its name",
        "log.checkpoint:write_durably",
        "        file.sync()\n",
        "",
        seeds=(1,),
        seconds=10,
        options=_ELECTIONS,
        invariants=("rel-P2",),
    ),
    Mutant(
        "E3: an epoch that leaves no room for elections is refused",
        "raft.quorum_state:QuorumState.refuse_epoch",
        "if epoch <= self.highest_to_take(now_ms):",
        "if True:",
        tests=(_EPOCHS + "test_an_epoch_that_leaves_no_room_for_elections_is_refused",),
    ),
    Mutant(
        "E3: an answer of such an epoch is not followed there",
        "raft.quorum_state:QuorumState._apply_response",
        "if known.epoch > highest:",
        "if False:",
        tests=(_EPOCHS + "test_a_leader_that_lies_about_the_epoch_is_not_followed_there",),
    ),
    Mutant(
        "E4: nobody stands after the last epoch",
        "raft.quorum_state:QuorumState.transition_to_candidate",
        "if not may_elect_in(self.epoch):",
        "if False:",
        tests=(_EPOCHS + "test_a_sole_voter_at_the_last_epoch_starts_and_says_what_is_wrong",),
    ),
    Mutant(
        "Q21: a second leader of an epoch is not believed",
        "raft.election:Election._refuse_leader",
        "return refused if warnings is None else Refused(Code.INVALID_REQUEST, warnings)",
        "return refused",
        tests=(_ELECTING + "test_a_second_leader_of_an_epoch_is_not_believed_and_said_once",),
    ),
    Mutant(
        "X1: a leader comes back resigned",
        "raft.quorum_state:QuorumState.resume",
        "self.role = Role.RESIGNED",
        "self.role = Role.LEADER",
        seeds=(1, 2),
        seconds=20,
        options=_ELECTIONS,
        invariants=("rel-Q1", "rel-X1"),
    ),
    Mutant(
        "X4: a newer epoch is saved before anything of it is said",
        "raft.calls:Gate._settle",
        "if state == self._saved:",
        "if state in (self._saved, ElectionState(state.epoch)):",
        seeds=(1, 2),
        seconds=20,
        options=_ELECTIONS,
        invariants=("rel-P2",),
    ),
    Mutant(
        "X17: nothing is asked for from a place that a power cut undoes",
        "raft.follower:FollowerState.fetch_due",
        " or quorum.is_truncating",
        "",
        tests=(_CUTTING + "test_nothing_is_fetched_from_a_place_that_a_power_cut_would_undo",),
    ),
    Mutant(
        "X17: nobody gets a vote while it is not known what this node has",
        "raft.election:Election._may_grant",
        "not quorum.is_truncating and ",
        "",
        tests=(_CUTTING + "test_no_vote_is_given_away_while_it_is_not_known_what_this_node_has",),
    ),
    Mutant(
        "rel-Q12: nobody votes for a log that lacks what it has",
        "raft.election:Election._may_grant",
        "is_up_to_date = not quorum.is_truncating and not quorum.has_more_than(last)",
        "is_up_to_date = True",
        seeds=(1, 2, 3, 4),
        seconds=30,
        # Links on which followers fall behind each other.
        options={**_SLOW, "jitter_us": 80_000, "operations_per_s": 60},
        invariants=("rel-Q12", "rel-Q4"),
    ),
    Mutant(
        "X4: whoever asked the wrong node has raised the epoch",
        "raft.election:Election.on_vote",
        "if epoch > quorum.epoch:",
        "if epoch > quorum.epoch and self._is_meant("
        "request.voter_id, partition.voter_directory_id):",
        tests=(_ELECTING + "test_a_vote_meant_for_another_disk_has_raised_the_epoch_all_the_same",),
    ),
    Mutant(
        "X5: a candidate nobody knows gets a vote like any other",
        "raft.election:Election._may_grant",
        "return is_up_to_date and quorum.leader_id == NOBODY",
        "return is_up_to_date and quorum.leader_id == NOBODY"
        " and partition.replica_id in quorum.voters",
        tests=(_ELECTING + "test_a_candidate_nobody_knows_is_answered_like_any_other",),
    ),
    Mutant(
        "X6: a newer epoch does not wind the election timer up again",
        "raft.election:Election.begin_unattached",
        "if was_waiting and",
        "if False and",
        tests=(_ELECTING + "test_a_stream_of_higher_epochs_does_not_postpone_the_own_election",),
    ),
    Mutant(
        "X7: a leader that no majority fetches from resigns",
        "raft.leader:Leader._watch_contacts",
        "return self._quorum.set_timer",
        "return [] and self._quorum.set_timer",
        tests=(_LEADING + "test_a_leader_that_nobody_fetches_from_resigns",),
    ),
    Mutant(
        "X7: fetching a snapshot is a sign of life",
        "raft.leader:Leader.on_fetch_snapshot",
        "self._contact(",
        "(lambda *_: [])(",
        tests=(_LEADING + "test_a_majority_that_fetches_keeps_its_leader",),
    ),
    Mutant(
        "rel-P1: a candidate claims what its disk will keep",
        "raft.election:Election.ask_due",
        "quorum.role is Role.CANDIDATE and not quorum.is_synced",
        "False",
        tests=(
            "tests/unit/raft/test_restart.py::test_a_candidate_claims_nothing_that_its_disk_may_lose",
        ),
    ),
    # ------------------------------------------------------------------------- high watermark
    Mutant(
        "rel-Q6: what is committed is on a majority of disks",
        "raft.leader:Leader.update_high_watermark",
        "[len(ends) // 2]",
        "[0]",
        seeds=(1,),
        seconds=10,
        options=_BUSY,
        invariants=("rel-Q6",),
    ),
    Mutant(
        "rel-P1: a leader counts what its own disk has",
        "raft.leader:Leader.update_high_watermark",
        "ends.append(quorum.log.synced_offset)",
        "ends.append(quorum.log.end_offset)",
        seeds=(1, 2),
        seconds=20,
        options={**_BUSY, "flush_us": (2_000, 40_000)},
        invariants=("rel-Q6",),
    ),
    Mutant(
        "X2: records of older epochs are not committed by counting",
        "raft.leader:Leader.update_high_watermark",
        "offset <= self.epoch_start_offset or ",
        "",
        seeds=(1, 2, 3, 4),
        seconds=30,
        options=_ELECTIONS,
        invariants=("rel-Q5", "rel-X1"),
    ),
    Mutant(
        "X3: the own epoch's first record is committed, not just what is before it",
        "raft.leader:Leader.update_high_watermark",
        "offset <= self.epoch_start_offset",
        "offset < self.epoch_start_offset",
        seeds=(1, 2, 3, 4),
        seconds=30,
        options=_ELECTIONS,
        invariants=("rel-Q5", "rel-X1"),
    ),
    Mutant(
        "rel-Q5: a leader does not know what is committed before its own epoch says so (Q20)",
        "raft.quorum_state:QuorumState.transition_to_leader",
        "self.high_watermark = None",
        "pass",
        seeds=(1,),
        seconds=15,
        options=_ELECTIONS,
        invariants=("rel-Q5",),
    ),
    Mutant(
        "X16: a leader is told so once it has applied what was before it",
        "raft.leader:Leader.begin",
        "effects = self._append(self._leader_change(now_ms), now_ms)",
        "effects = self._append(self._leader_change(now_ms), now_ms)\n"
        "    self._has_announced = True\n"
        "    effects += quorum.notify(quorum.listener.on_leader, quorum.epoch, now_ms)",
        seeds=(1, 2),
        seconds=15,
        options=_ELECTIONS,
        invariants=("rel-X1", "rel-Q13"),
    ),
    # ---------------------------------------------------------------------------- replication
    Mutant(
        "X17: a voter fetches on once its disk has what it fetched",
        "raft.follower:FollowerState.fetch_due",
        "quorum.is_voter and not quorum.is_synced",
        "False",
        seeds=(1,),
        seconds=8,
        options=_BUSY,
        invariants=("rel-P1",),
    ),
    Mutant(
        "rel-Q3: a place the leader does not have diverges",
        "raft.fetch_rules:validate_fetch",
        "own_epoch != last_fetched_epoch or own_end < offset",
        "False",
        seeds=(1, 2, 3, 4),
        seconds=30,
        options=_ELECTIONS,
        invariants=("rel-Q3", "rel-Q4", "rel-Q6", "rel-Q5", "rel-X1", "rel-Q19"),
    ),
    Mutant(
        "X8, rel-Q7: what is committed is never cut",
        "raft.fetch_rules:truncation_point",
        "offset < high_watermark",
        "False",
        tests=(_PLACES + "test_a_follower_never_cuts_below_its_high_watermark",),
    ),
    Mutant(
        "rel-Q13: what clients see is committed",
        "metadata.quorum:MetadataQuorum._propose",
        "self.newest = delta.after",
        "self.newest = self.image = delta.after",
        seeds=(1,),
        seconds=8,
        options=_BUSY,
        invariants=("rel-Q13",),
    ),
    # ------------------------------------------------------------------------------ snapshots
    Mutant(
        "rel-P3: a snapshot is synced before it has its name",
        "metadata.snapshotter:Snapshotter._sync",
        "        file.sync()",
        "        pass",
        seeds=(1, 2),
        seconds=15,
        options=_SNAPSHOTS,
        invariants=("rel-P3",),
    ),
    Mutant(
        "rel-Q10: a file without its footer is no snapshot",
        "raft.snapshot_transfer:SnapshotTransfer.take",
        "self.problem = part.problem()",
        "pass",
        tests=(_TRANSFER + "test_a_file_without_its_footer_is_not_installed",),
    ),
    Mutant(
        "rel-Q11: after a snapshot the epoch is the snapshot's",
        "raft.fetch_rules:last_epoch",
        "return newest_snapshot_id.epoch",
        "return 0",
        tests=(
            _PLACES + "test_the_last_epoch_is_the_snapshots_only_where_the_log_is_empty_at_its_end",
        ),
    ),
    Mutant(
        "X9: the log start is a place only with the epoch of its snapshot",
        "raft.fetch_rules:_is_before",
        "offset < start_offset or at_start or",
        "offset < start_offset or",
        tests=(_PLACES + "test_the_log_start_is_a_place_only_with_the_epoch_of_its_snapshot",),
    ),
    Mutant(
        "X10: offset 0 is not read from segments where a snapshot exists",
        "raft.fetch_rules:validate_fetch",
        "return SnapshotNeeded(newest)\n        if",
        "pass\n        if",
        tests=(_PLACES + "test_offset_0_is_never_served_from_segments_once_a_snapshot_exists",),
    ),
    Mutant(
        "X11: the end of a snapshot is no position in it",
        "raft.snapshot_serve:serve_chunk",
        "0 <= position < size_bytes",
        "0 <= position <= size_bytes",
        tests=(_SERVING + "test_a_position_outside_of_the_file_is_refused_its_end_too",),
    ),
    Mutant(
        "X12: a download that cleaning cut off is begun anew",
        "raft.follower:FollowerState._on_chunk",
        "        transfer.drop()\n",
        "",
        tests=(
            "tests/unit/raft/test_following.py::"
            "test_a_snapshot_that_is_gone_on_the_leader_is_not_waited_for",
        ),
    ),
    Mutant(
        "X12: a snapshot that is fetched is kept",
        "raft.node:RaftNode._clean",
        "held_offset=held",
        "held_offset=None",
        seeds=(1, 2),
        seconds=15,
        options={
            **_SNAPSHOTS,
            "voters": 3,
            "observers": 1,
            "fault_kinds": ("wipe",),
            "fault_gap_us": (3_000_000, 6_000_000),
            "delay_us": 8_000,
            "jitter_us": 4_000,
            "is_encoded": False,
            "snapshot_bytes": 20_000,
            "snapshot_interval_ms": 2_000,
            "fetch_snapshot_max_bytes": 64,
            "fetch_max_bytes": 4_096,
            "topics_max": 60,
        },
        invariants=("rel-Q19",),
    ),
    Mutant(
        "rel-Q4: a voter that forgot what it promised votes for nobody",
        "raft.election:Election._may_grant",
        "quorum.log.forgotten is not None",
        "False",
        tests=(
            "tests/unit/raft/test_forgetful_voter.py::"
            "test_no_leader_wins_by_the_vote_of_one_that_forgot",
        ),
    ),
    Mutant(
        "rel-Q4: a log that is begun anew leaves a mark of where it was",
        "metadata.meta_log:MetaLog._rename_damaged",
        "mark_forgotten(self._fs, path, end)",
        "pass",
        tests=(
            "tests/unit/metadata/test_snapshot_damage.py::"
            "test_no_stop_at_any_moment_makes_a_voter_forget_that_it_forgot",
        ),
    ),
    Mutant(
        "X13: a snapshot ahead of the log replaces it at the start",
        "metadata.meta_log:MetaLog._catch_up_with_snapshot",
        "self._log.truncate_fully(newest.offset)",
        "pass",
        tests=(_DISK + "test_a_snapshot_of_a_newer_epoch_wins_over_a_longer_log_that_diverged",),
    ),
    Mutant(
        "Q9: a snapshot that has its name is read-only",
        "metadata.snapshot_store:SnapshotStore.give_name",
        "self._fs.make_read_only(part.path)",
        "pass",
        tests=(_DISK + "test_a_snapshot_is_read_only_from_its_name_on_whoever_made_it",),
    ),
    Mutant(
        "X14: a snapshot is of the end of a batch",
        "metadata.snapshotter:Snapshotter.on_applied",
        "not is_batch_end",
        "False",
        tests=(_EMITTING + "test_a_snapshot_waits_for_the_end_of_a_batch",),
    ),
    Mutant(
        "X15: the last snapshot stays",
        "raft.snapshot_rules:_by_retention",
        "len(stored) < 2",
        "len(stored) < 1",
        tests=(_RULES + "test_the_last_snapshot_stays_however_large_or_old_it_is",),
    ),
    Mutant(
        "rel-Q15: the snapshot at the log start is not deleted",
        "metadata.snapshot_store:SnapshotStore.take_before",
        "each.offset < log_start_offset",
        "each.offset <= log_start_offset",
        seeds=(1, 2, 3, 4),
        seconds=30,
        options=_SNAPSHOTS,
        invariants=("rel-Q8", "rel-Q15"),
    ),
    Mutant(
        "rel-Q9: a snapshot has all of the image",
        "metadata.snapshot_records:_records",
        "for key in sorted(settings):",
        "for key in ():",
        seeds=(1,),
        seconds=15,
        options=_SNAPSHOTS,
        invariants=("rel-Q9",),
    ),
    Mutant(
        "X13: a log whose beginning is lost is not started",
        "metadata.meta_log:open_meta_log",
        "refuse_lost_beginning(fs, path, examined, has_peers=has_peers)",
        "pass",
        tests=(
            _DISK + "test_a_beginning_that_no_snapshot_holds_is_refused_before_anything_is_touched",
        ),
    ),
    Mutant(
        "X14: within a transaction no place is the end of a batch",
        "metadata.loader:Loader._begin",
        "self.is_batch_end = offset == header.base_offset",
        "self.is_batch_end = True",
        tests=(
            _TRANSACTIONS
            + "test_a_transaction_in_the_middle_of_a_batch_is_no_place_for_a_snapshot",
        ),
    ),
    Mutant(
        "rel-Q9: a snapshot has every field",
        "metadata.snapshot_records:register_broker_record",
        "cordoned_log_dirs=broker.cordoned_log_dirs",
        "cordoned_log_dirs=()",
        tests=(
            "tests/unit/metadata/test_lives.py::test_a_snapshot_and_the_log_up_to_it_are_the_same_state",
        ),
    ),
    # ------------------------------------------------------------------------------ the facade
    Mutant(
        "rel-Q13: half a batch is never seen",
        "metadata.loader:Loader._batch_steps",
        "self._weight = 0\n            yield",
        "self._settle()\n            yield",
        tests=(_FACADE + "test_half_a_batch_is_never_seen_however_long_it_is",),
    ),
    Mutant(
        "rel-Q13: a follower shows what is committed",
        "metadata.quorum:MetadataQuorum._follow",
        "end_offset=end_offset",
        "end_offset=None",
        tests=(_FACADE + "test_a_follower_shows_what_is_committed_and_nothing_more",),
    ),
    Mutant(
        "rel-Q13: the active controller loads no snapshot",
        "metadata.quorum:MetadataQuorum.on_snapshot",
        'assert self._active_epoch is None, "the active controller never loads a snapshot"',
        "pass",
        tests=(_FACADE + "test_the_active_controller_never_loads_a_snapshot",),
    ),
    Mutant(
        "X16: a controller decides once it has applied its log",
        "metadata.quorum:MetadataQuorum._follow",
        "return [*effects, timer]",
        "effects.append(timer)",
        tests=(_FACADE + "test_a_new_leader_decides_only_once_it_has_applied_its_log",),
    ),
    Mutant(
        "Q39: a deposed controller goes back to what is committed",
        "metadata.quorum:MetadataQuorum._renounce",
        "self.newest = self.image",
        "pass",
        tests=(
            _FACADE + "test_a_deposed_leader_answers_what_is_in_doubt_and_shows_what_is_committed",
        ),
    ),
    Mutant(
        "rel-Q18: records of the metadata log are not deleted by hand",
        "replica.delete_records:protected_topic",
        "topic == METADATA_TOPIC",
        "False",
        tests=(
            "tests/unit/broker/test_list_offsets.py::"
            "test_the_metadata_log_is_shortened_by_snapshots_alone",
        ),
    ),
    Mutant(
        "rel-Q18: settings of the metadata log are not changed",
        "controller.configs:_topic_problem",
        "name == METADATA_TOPIC",
        "False",
        tests=(
            "tests/unit/api/test_admin_handlers.py::"
            "test_the_metadata_log_shows_its_policy_and_takes_no_change",
        ),
    ),
    Mutant(
        "I7: a new controller counts every broker as heard from at its beginning",
        "controller.brokers:Brokers.activate",
        "dict.fromkeys(there, now_ms)",
        "dict.fromkeys(there, 0)",
        tests=(
            "tests/golden/test_controller_scripts.py::"
            "test_the_controller_decides_as_recorded[failover]",
        ),
    ),
)
