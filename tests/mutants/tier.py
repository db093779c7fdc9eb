"""Guards of tiers on replicas and of reads from followers, and the tests that miss them. See `table`."""

from tests.mutants.patch import Mutant

_FOLLOWING = "tests/unit/replica/test_follower_tier.py::"
_ADAPTER = "tests/unit/broker/test_tier_adapter.py::"
_TRUNCATION = "tests/unit/log/test_truncation.py::"
_READ = "tests/unit/tiered/test_tiered_read.py::"
_GUARD = "tests/unit/tiered/test_tiered_guard.py::"
_LATE = "tests/unit/tiered/test_tiered_unconfirmed.py::"
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
        "T62: nobody expires on metadata that explains less",
        "tiered.expiry:Expiry._refuse",
        "not self._catalog.explains_all()",
        "False",
        tests=(_GUARD + "test_metadata_that_shrinks_under_a_leader_stops_it",),
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
        "tiered.expiry:SegmentRemoval._deleted",
        "not self._is_final",
        "False",
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
)
