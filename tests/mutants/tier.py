"""Guards of tiers on replicas and of reads from followers, and the tests that miss them. See `table`."""

from tests.mutants.patch import Mutant

_FOLLOWING = "tests/unit/replica/test_follower_tier.py::"
_GROUND = "tests/unit/broker/test_tier_ground.py::"
_TRUNCATION = "tests/unit/log/test_truncation.py::"
_READ = "tests/unit/tiered/test_tiered_read.py::"
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
        tests=(_TRUNCATION + "test_a_truncation_takes_back_what_was_told_of_the_tier",),
    ),
    Mutant(
        "T22: an answer from before the question is none",
        "broker.tier_ground:MetadataFeed._ends_came",
        "mirror.is_again or ",
        "",
        tests=(_GROUND + "test_an_answer_from_before_the_question_is_none",),
    ),
    Mutant(
        "F28: records that were committed meanwhile are no loss",
        "broker.tier_ground:MetadataFeed._records_came",
        "max(mirror.end, ends[-1])",
        "mirror.end",
        tests=(_GROUND + "test_records_that_were_committed_while_others_were_fetched_are_no_loss",),
    ),
    Mutant(
        "T30: what is not found is looked for in all that is committed by now",
        "tiered.remote_log:RemoteLog.aux_state",
        "metadata.lookup(where, epoch=epoch, offset=offset) is not None",
        "True",
        tests=(_READ + "test_a_follower_looks_again_in_all_that_is_committed_by_now",),
    ),
    Mutant(
        "KIP-392: a replica that left, or whose files failed, answers nobody",
        "replica.refusals:of_any_replica",
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
        tests=(_CLOSEST + "test_the_end_of_a_log_is_not_told_before_a_new_leader_knows_it",),
    ),
)
