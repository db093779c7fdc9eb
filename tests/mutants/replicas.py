"""Guards of leaders and followers, and the tests that miss them. Names as in `table`."""

from tests.mutants.patch import Mutant

_ISR = "tests/unit/replica/test_isr.py::"
_REST = "tests/unit/broker/test_resting.py::"
_ALTER = "tests/unit/replica/test_alter.py::"
_FOLLOWING = "tests/unit/replica/test_follower.py::"
_PRODUCE = "tests/unit/broker/test_produce.py::"

REPLICAS = (
    Mutant(
        "X19: the epoch of a follower is that of its Fetch, and equals the registration",
        "replica.isr:ReplicaState.is_eligible",
        "self.broker_epoch in (NO_BROKER_EPOCH, fact.epoch)",
        "True",
        tests=(_ISR + "test_who_may_not_be_in_an_isr_is_not_proposed",),
    ),
    Mutant(
        "I20: who rests in a session had all when the session fetched last",
        "replica.isr:ReplicaState.settle",
        "self._caught_up_ms = max(self._caught_up_ms, clock.ms)",
        "pass",
        tests=(_REST + "test_a_session_that_was_left_says_nothing_of_a_follower_any_more",),
    ),
    Mutant(
        "I14: the dead incarnation of a follower that rests is refused",
        "replica.isr:FetchClock.holds",
        "not is_stale(self._brokers, replica_id, broker_epoch)",
        "True",
        tests=(_REST + "test_the_dead_incarnation_of_a_follower_that_rests_is_refused",),
    ),
    Mutant(
        "X20: a Fetch of a dead incarnation leaves no trace",
        "replica.isr:is_stale",
        "fact.epoch > broker_epoch",
        "False",
        tests=(_ISR + "test_a_late_fetch_of_a_dead_incarnation_is_refused_without_a_trace",),
    ),
    Mutant(
        "X21: INELIGIBLE_REPLICA takes the proposal back",
        "replica.partition:Partition.altered",
        "is_refused(outcome.code)",
        "False",
        tests=(_ISR + "test_a_refused_change_is_taken_back_and_not_asked_again",),
    ),
    Mutant(
        "X21, X29: what only metadata explains takes no proposal back",
        "replica.partition:Partition.altered",
        "is_refused(outcome.code)",
        "is_refused(outcome.code) or metadata_decides(outcome.code)",
        tests=(_ISR + "test_an_answer_that_only_metadata_explains_leaves_the_change_under_way",),
    ),
    Mutant(
        "X22: who is to leave counts until the controller agreed",
        "replica.partition:Partition.shrink",
        "self._propose(stay)",
        "self._propose(stay); self.maximal_isr = tuple(stay)",
        tests=(_ISR + "test_who_is_to_leave_counts_until_the_controller_agrees",),
    ),
    Mutant(
        "X23, rel-R6: who is to join counts at once",
        "replica.partition:Partition._expand",
        "self.maximal_isr = tuple(dict.fromkeys((*self.maximal_isr, broker_id)))",
        "pass",
        tests=(_ISR + "test_who_is_to_join_counts_at_once",),
    ),
    Mutant(
        "X25, rel-R8: a joiner has reached the start of the leader epoch",
        "replica.partition:Partition._expand",
        "max(self.log.high_watermark, self.epoch_start_offset)",
        "self.log.high_watermark",
        tests=(_ISR + "test_a_follower_below_the_start_of_the_leader_epoch_is_not_proposed",),
    ),
    Mutant(
        "X26: nothing is committed below min.insync.replicas",
        "replica.partition:Partition._advance_high_watermark",
        "len(self.isr) < self.min_isr",
        "False",
        tests=(_ISR + "test_the_watermark_stands_while_the_isr_is_too_small",),
    ),
    Mutant(
        "X26: one that may not join does not hold the watermark",
        "replica.partition:Partition._advance_high_watermark",
        "follower.is_eligible(self.brokers.fact(follower.broker_id))",
        "True",
        tests=(_ISR + "test_one_that_may_not_join_does_not_hold_the_watermark",),
    ),
    Mutant(
        "rel-R7: metadata that is not newer takes no proposal back",
        "replica.partition:Partition.update",
        "if is_newer or self.proposed is None:",
        "if True:",
        tests=(_ISR + "test_the_same_metadata_again_takes_no_proposal_back",),
    ),
    Mutant(
        "rel-R7: an error of the whole request takes no proposal back",
        "replica.alter:AlterPartitions._answered",
        "if not isinstance(outcome, KafkaError):",
        "if True:",
        tests=(_ALTER + "test_an_error_of_the_entire_request_takes_no_proposal_back",),
    ),
    Mutant(
        "rel-R13: acks=all asks for an ISR that is large enough",
        "replica.partition:Partition.append",
        "len(self.isr) < self.min_isr",
        "False",
        tests=(_ISR + "test_a_proposal_does_not_make_an_isr_large_enough",),
    ),
    Mutant(
        "rel-R19: an answer of another leader epoch is not applied",
        "replica.follower:Fetcher._current",
        "found.leader_epoch != position.leader_epoch",
        "False",
        tests=(_FOLLOWING + "test_an_answer_of_another_leader_epoch_is_not_applied",),
    ),
    Mutant(
        "rel-R19: an answer for another place in the log is not applied",
        "replica.follower:Fetcher._current",
        "found.partition.log.log_end_offset == position.fetch_offset",
        "True",
        tests=(_FOLLOWING + "test_an_answer_for_another_place_is_not_applied",),
    ),
    Mutant(
        "rel-P4: a record whose other holders left is on disk before it is acknowledged",
        "broker.produce:_Pending._kept",
        "if is_durable or not partition.needs_flush(ACKS_ALL)",
        "if True",
        tests=(
            _PRODUCE + "test_a_record_that_is_committed_because_the_others_left_waits_for_the_disk",
        ),
    ),
    Mutant(
        "rel-P4: who is left alone syncs what others had vouched for",
        "replica.sole_replicas:SoleReplicas.look",
        "not partition.is_sole_replica or partition.is_durable",
        "True",
        tests=(
            "tests/unit/replica/test_sole_replicas.py::"
            "test_a_leader_that_is_left_alone_syncs_what_others_had_vouched_for",
            "tests/unit/broker/test_replication.py::"
            "test_the_last_of_an_isr_keeps_what_others_vouched_for",
        ),
    ),
    Mutant(
        "rel-P9: a disk that refuses while a log is opened has failed",
        "broker.hosting:Hosting._disk_failed",
        "effects = self._observer.disk_failed(problem, now_ms)",
        "effects = []",
        tests=(
            "tests/unit/broker/test_hosting.py::"
            "test_a_disk_that_refuses_while_a_log_is_opened_has_failed",
        ),
    ),
    Mutant(
        "rel-P9: a new replica whose directory fails while it is made is made in another one",
        "broker.hosting:Hosting._disk_failed",
        "self._store.is_unmade(name, problem)",
        "False",
        tests=(
            "tests/unit/broker/test_failing_disks.py::test_a_new_replica_whose_directory_fails"
            "_while_it_is_made_is_made_in_another_one",
        ),
    ),
    Mutant(
        "I2: a living incarnation keeps its registration before it is counted in, too",
        "controller.brokers:Brokers._registration_problem",
        "self._is_alive(wanted.broker_id, now_ms)",
        "not existing.fenced and self._is_alive(wanted.broker_id, now_ms)",
        tests=(
            "tests/unit/controller/test_registrations.py::"
            "test_the_late_request_of_a_dead_incarnation_does_not_take_the_place_of_the_living",
        ),
    ),
)
