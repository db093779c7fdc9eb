"""Guards of tiers on replicas and of reads from followers, and the tests that miss them. See `table`."""

from tests.mutants.patch import Mutant

_FOLLOWING = "tests/unit/replica/test_follower_tier.py::"
_ADAPTER = "tests/unit/broker/test_tier_adapter.py::"
_TRUNCATION = "tests/unit/log/test_truncation.py::"
_READ = "tests/unit/tiered/test_tiered_read.py::"
_LINEAGE = "tests/unit/tiered/test_tiered_lost_lineage.py::"
_COPY = "tests/unit/tiered/test_tiered_copy.py::"
_GUARD = "tests/unit/tiered/test_tiered_guard.py::"
_TAKEOVER = "tests/unit/tiered/test_catalog_takeover.py::"
_LATE = "tests/unit/tiered/test_tiered_unconfirmed.py::"
_CIRCUIT = "tests/unit/tiered/test_tiered_circuit.py::"
_CIRCUITS = "tests/unit/tiered/test_store_circuits.py::"
_SLOTS = "tests/unit/tiered/test_tiered_copy_slots.py::"
_ABANDONED = "tests/unit/tiered/test_tiered_abandoned.py::"
_REMOVAL = "tests/unit/tiered/test_segment_removal.py::"
_CLOSEST = "tests/unit/broker/test_closest_replica.py::"

TIER = (
    Mutant(
        "rel-T17: a follower begins above nothing that the leader lost",
        "replica.tier_start:TierStart._last_epoch_came",
        "found[0] != state.lineage[-1][0] or found[1] < offset",
        "False",
        tests=(
            _FOLLOWING + "test_a_segment_whose_end_the_leader_lost_counts_up_to_the_local_log_only",
        ),
    ),
    Mutant(
        "rel-T17: the producers are on disk before there is a segment",
        "log.truncation:StartOver.cut_files",
        "snapshot.sync()",
        "pass",
        tests=(_TRUNCATION + "test_a_crash_while_a_log_begins_anew_leaves_all_of_it_or_nothing",),
    ),
    Mutant(
        "T1, rel-T2: what was told of the tier goes with the records",
        "log.log:Log.note_cut",
        "self.highest_remote_offset = min(self.highest_remote_offset, end - 1)",
        "pass",
        tests=(_TRUNCATION + "test_a_truncation_takes_back_what_was_reported_of_the_tier",),
    ),
    Mutant(
        "T22: an answer from before the question is none",
        "broker.tier.feed:MetadataFeed._ends_came",
        "mirror.is_again or ",
        "",
        tests=(_ADAPTER + "test_an_answer_from_before_the_question_is_none",),
    ),
    Mutant(
        "F28: records that were committed meanwhile are no loss",
        "broker.tier.feed:MetadataFeed._records_came",
        "max(mirror.end, ends[-1])",
        "mirror.end",
        tests=(
            _ADAPTER + "test_records_that_were_committed_while_others_were_fetched_are_no_loss",
        ),
    ),
    Mutant(
        "T30: what is not found is looked for in all that is committed by now",
        "tiered.remote_log:RemoteLog.aux_state",
        "metadata.lookup(where, epoch=epoch, offset=offset) is not None",
        "True",
        tests=(_READ + "test_a_follower_searches_again_in_all_that_is_committed_by_now",),
    ),
    Mutant(
        "rel-T2: files that go never move the start of a tiered log",
        "log.log:Log._mark_deleted",
        "if not self.is_tiered:",
        "if not self.is_tiered or self._config.remote_log_copy_disable:",
        tests=(
            "tests/unit/log/test_retention.py::"
            "test_files_that_go_never_move_the_start_of_a_tiered_log",
        ),
    ),
    Mutant(
        "rel-T3: a segment is copied when its transactions have ended",
        "tiered.copier:Copier.candidates",
        "log.last_stable_offset",
        "log.high_watermark",
        tests=(_COPY + "test_nothing_at_or_above_the_last_stable_offset_is_copied",),
        also=(
            Mutant(
                "the check before the copy",
                "tiered.copier:Copier._next_due",
                "candidate.end_offset < hosted.log.last_stable_offset",
                "True",
            ),
        ),
    ),
    Mutant(
        "rel-T19: the marker of an aborted transaction may be in a later segment",
        "tiered.reads.aborted_search:AbortedSearch.next",
        "self._open_transactions.load(self._last, self._open_loaded, now_ms)",
        "self._finish(now_ms)",
        tests=(_READ + "test_aborted_transactions_are_found_across_segments_and_tiers",),
    ),
    Mutant(
        "rel-T1: what only a file says to be deleted stays in the tier",
        "tiered.hosted:Hosted.deletes_below",
        "min(self.log.decided_start_offset, self.log.log_start_offset)",
        "self.log.log_start_offset",
        tests=(
            _LINEAGE
            + "test_a_wrong_digit_in_the_file_of_log_start_offsets_deletes_nothing_in_the_tier",
        ),
    ),
    Mutant(
        "rel-T14: what seems to be below all leader epochs stays while the lineage lacks records",
        "tiered.expiry:_AskedTier.serves_all",
        "return False",
        "return True",
        tests=(_LINEAGE + "test_a_wrong_first_epoch_deletes_nothing_in_the_tier",),
    ),
    Mutant(
        "T61: a broker without its tier does not start",
        "broker.node:BrokerNode.broker_registered",
        "disabled.refuse_start(self.config, image)",
        "pass",
        tests=(
            "tests/unit/broker/test_tier_replicas.py::"
            "test_a_broker_that_lost_its_tier_refuses_to_start_and_the_log_stays_complete",
        ),
    ),
    Mutant(
        "T62: a catalog never gives way to one that explains less",
        "tiered.catalog.keeper:CatalogKeeper._compared",
        "if result.missing:",
        "if False:",
        tests=(_GUARD + "test_metadata_that_was_lost_costs_neither_the_catalog_nor_the_history",),
    ),
    Mutant(
        "T62: a deposed leader deletes no part that its successor took over",
        "tiered.objects.catalog_changes:_delete_old",
        "name.leader_epoch > epoch",
        "False",
        tests=(_TAKEOVER + "test_a_deposed_leader_deletes_no_part_that_its_successor_took_over",),
    ),
    Mutant(
        "T62: a successor looks again for the head that it took over",
        "tiered.objects.catalog_changes:apply_update",
        "not _exists(store, key)",
        "False",
        tests=(
            _TAKEOVER
            + "test_a_successor_whose_predecessor_deletes_meanwhile_counts_on_nothing_of_it",
        ),
    ),
    Mutant(
        "T62: a first head is believed only while its predecessor's is there",
        "tiered.objects.catalog_reader:read_before",
        "_is_certain(store, head)",
        "True",
        tests=(
            _TAKEOVER
            + "test_a_first_head_whose_leader_died_before_it_looked_again_is_not_believed",
        ),
    ),
    Mutant(
        "T62: a part that is not read has the segments that the metadata has",
        "tiered.catalog.guard:_ComparedHead._agrees",
        "digest_of(ids) == ref.digest",
        "True",
        tests=(
            _TAKEOVER + "test_segments_of_the_same_number_and_offsets_are_not_taken_for_the_others",
        ),
    ),
    Mutant(
        "T62: nobody expires on metadata that explains less",
        "tiered.expiry:Expiry._compare",
        "if self._catalog.explains_all()",
        "if True",
        tests=(_GUARD + "test_metadata_that_shrinks_under_a_leader_stops_it",),
        also=(
            Mutant(
                "the check after the decision",
                "tiered.expiry:Expiry._may_act",
                "self._catalog.explains_all()",
                "True",
            ),
        ),
    ),
    Mutant(
        "KIP-595: a new leader's history is compared even where nothing is new",
        "broker.tier.feed:MetadataFeed._ends_came",
        "mirror.epoch == NO_EPOCH or mirror.verified == mirror.leader",
        "True",
        tests=(_ADAPTER + "test_what_was_read_is_compared_with_each_new_leaders_history",),
    ),
    Mutant(
        "KIP-595: metadata that forked is read again",
        "tiered.metadata.log:TopicMetadataLog._step",
        "fork is not None",
        "False",
        tests=(_GUARD + "test_metadata_that_forked_is_read_again_and_nobody_acts_meanwhile",),
    ),
    Mutant(
        "rel-T13: who put too late deletes it",
        "tiered.copier:Copier.give_up",
        "self._unconfirmed.note(segment, now_ms)",
        "[]",
        tests=(_LATE + "test_a_deposed_leader_deletes_what_it_put_too_late",),
    ),
    Mutant(
        "rel-T13: an abandoned copy is deleted twice",
        "tiered.segment_removal:SegmentRemoval._delete_some",
        "each.state != SegmentState.COPY_STARTED",
        "True",
        tests=(_LATE + "test_who_died_after_a_late_put_is_cleaned_up_after_by_the_leader",),
    ),
    Mutant(
        "KIP-392: a replica that left, or whose files failed, answers nobody",
        "replica.read:of_any_replica",
        "refusal is NOT_LEADER",
        "True",
        tests=(
            "tests/unit/replica/test_partition.py::"
            "test_a_replica_that_left_or_whose_files_failed_answers_no_consumer",
        ),
    ),
    Mutant(
        "KIP-207: a new leader does not tell what it does not know",
        "broker.list_offsets:_behind",
        "partition.epoch_start_offset <= partition.log.high_watermark",
        "True",
        tests=(_CLOSEST + "test_the_end_of_a_log_is_not_reported_before_a_new_leader_knows_it",),
    ),
    Mutant(
        "F3: a store that failed in a row is not used",
        "tiered.circuits:StoreCircuits.refusal",
        "circuit.is_open and",
        "False and",
        tests=(_CIRCUIT + "test_an_outage_of_three_hours_costs_what_one_of_one_hour_costs",),
    ),
    Mutant(
        "F3: nothing is written to a store that cannot be read",
        "tiered.circuits:StoreCircuits.refusal",
        "self._needs[operation]",
        "(operation,)",
        tests=(_CIRCUIT + "test_a_store_whose_reads_fail_gets_no_copies",),
    ),
    Mutant(
        "F3: a copy has a slot before it is announced",
        "tiered.coroutines:Slots.acquire",
        "if self.free:",
        "if True:",
        tests=(_SLOTS + "test_a_store_that_hangs_gets_a_few_copies_and_not_one_of_each_partition",),
    ),
    Mutant(
        "F8: what began before a circuit opened says nothing of the store",
        "tiered.circuits:StoreCircuits._note",
        "circuit.openings != openings",
        "False",
        tests=(_CIRCUITS + "test_what_began_before_a_circuit_opened_does_not_open_it_again",),
    ),
    Mutant(
        "F15: a store that lacks an object has answered",
        "tiered.circuits:StoreCircuits._note",
        "problem is None or isinstance(problem, _ANSWERS)",
        "False",
        tests=(_CIRCUITS + "test_one_operation_of_a_plugin_is_let_through",),
    ),
    Mutant(
        "F8: one probe at a time",
        "tiered.circuits:StoreCircuits._probe",
        "if self._is_probing:",
        "if False:",
        tests=(_CIRCUITS + "test_circuits_that_open_one_after_the_other_share_a_probe",),
    ),
    Mutant(
        "F3: a full store gets fewer and fewer copies",
        "tiered.circuits:StoreCircuits._probed",
        "copying.relapses <= 1",
        "True",
        tests=(_CIRCUIT + "test_a_store_that_takes_little_more_than_a_probe_gets_few_copies",),
    ),
    Mutant(
        "F14: a search that waited for a thread says nothing of the store",
        "tiered.circuits:StoreCircuits.submit",
        "queue_timeout_ms > 0 and",
        "False and",
        tests=(
            _CIRCUITS + "test_work_that_may_have_waited_for_a_thread_says_nothing_about_the_store",
        ),
    ),
    Mutant(
        "F3: one operation at a time where nothing can be probed",
        "tiered.circuits:StoreCircuits.admit",
        "own.due_ms = now_ms + TRIAL_MS",
        "pass",
        tests=(_CIRCUITS + "test_one_operation_of_a_plugin_is_let_through",),
    ),
    Mutant(
        "F3: a node that stops sends no probe",
        "tiered.circuits:StoreCircuits._send_probe",
        "self._is_over or",
        "",
        tests=(_CIRCUIT + "test_a_node_that_stops_sends_no_more_probes",),
    ),
    Mutant(
        "F3: nothing is put into the store of another cluster",
        "tiered.objects.probe:probe",
        "check_owner()",
        "pass",
        tests=(_CIRCUIT + "test_no_probe_is_put_into_the_store_of_another_cluster",),
    ),
    Mutant(
        "F15: what is missing or damaged is no failure of the store",
        "tiered.circuits:is_failure_of_store",
        "return not isinstance(problem, FirnlineError)",
        "return True",
        tests=(
            _CIRCUITS + "test_work_that_may_have_waited_for_a_thread_says_nothing_about_the_store",
        ),
    ),
    Mutant(
        "F3: no copy is announced once the store is down",
        "tiered.copier:Copier._store",
        "refused is not None",
        "False",
        tests=(
            _CIRCUIT + "test_a_segment_that_was_checked_while_the_store_went_down_is_not_announced",
        ),
    ),
    Mutant(
        "F3: no copy is undone while the store is down",
        "tiered.copier:Copier._undo",
        'services.circuits.refusal("delete", run.now_ms) is None',
        "True",
        tests=(_CIRCUIT + "test_a_copy_that_fails_while_the_store_is_down_is_not_undone",),
    ),
    Mutant(
        "F21: no deletion is announced while the store is down",
        "tiered.segment_removal:SegmentRemoval._goes_on",
        "refused is None",
        "True",
        tests=(_CIRCUIT + "test_expiration_writes_nothing_while_the_store_is_down",),
    ),
    Mutant(
        "F21: the segment that cannot be deleted is found among many",
        "tiered.segment_removal:SegmentRemoval._failed",
        "len(segments) > 1",
        "False",
        tests=(_REMOVAL + "test_a_segment_that_cannot_be_deleted_costs_the_others_nothing",),
    ),
    Mutant(
        "F21: a call that takes too long is not repeated as it was",
        "tiered.segment_removal:SegmentRemoval._delete_some",
        "1 if is_failed else",
        "self._count if is_failed else",
        tests=(_REMOVAL + "test_deletions_that_take_too_long_are_asked_for_one_at_a_time",),
    ),
    Mutant(
        "rel-T2: all are marked before one is deleted",
        "tiered.segment_removal:SegmentRemoval._remove",
        "self._to_mark or not",
        "not",
        tests=(_REMOVAL + "test_nothing_is_deleted_if_the_role_ends_among_the_marks",),
    ),
    Mutant(
        "T54: a partition that hangs does not keep the others in the tier",
        "tiered.remover:Remover._marked",
        "self._begin_some(now_ms)",
        "[]",
        tests=(_REMOVAL + "test_partitions_of_a_deleted_topic_are_removed_side_by_side",),
    ),
    Mutant(
        "F23: a deleted topic waits while the store is down",
        "tiered.remover:Remover._begin_some",
        "refused is not None and",
        "False and",
        tests=(_CIRCUIT + "test_the_remover_waits_while_the_store_is_down",),
    ),
    Mutant(
        "F14: no read waits for a store that is down",
        "tiered.reads.reader:_Attempts.again",
        "KafkaError | WorkTimedOut | StoreUnavailable",
        "KafkaError | WorkTimedOut",
        tests=(_CIRCUIT + "test_a_read_of_a_store_that_is_down_fails_at_once",),
    ),
    Mutant(
        "rel-T2: what seemed an abandoned copy is deleted only if it is unfinished",
        "tiered.segment_removal:SegmentRemoval._publish",
        "segment.state == SegmentState.COPY_STARTED",
        "False",
        tests=(_ABANDONED + "test_a_copy_that_is_finished_before_its_deletion_is_committed_stays",),
    ),
    Mutant(
        "rel-T13: a catalog that is put late does not stay",
        "tiered.remover:Remover._remove",
        "run.emit(self._sweep_later(delete, run.now_ms))",
        "pass",
        tests=(_REMOVAL + "test_a_catalog_that_a_leader_puts_after_the_removal_is_removed_later",),
    ),
    Mutant(
        "F3: a catalog that was not written is a failure",
        "tiered.catalog.keeper:CatalogKeeper._put",
        "failure_of=itemgetter(1),",
        "",
        tests=(_CIRCUIT + "test_a_result_that_has_an_error_counts",),
    ),
    Mutant(
        "F3: a store that was down at the start is not used",
        "tiered.remote_log:RemoteLog.start",
        'self.services.circuits.open("read", problem, now_ms)',
        "[]",
        tests=(_CIRCUIT + "test_a_node_that_starts_while_its_store_is_down_asks_it_nothing",),
    ),
)
