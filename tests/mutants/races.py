"""Guards against brokers of the past, at the controller and in a broker's life. Names as in `table`."""

from tests.mutants.patch import Mutant

_RACE = "tests/props/test_stale_epoch_races.py::"
_ISR_CHANGES = "tests/unit/controller/test_isr_changes.py::"
_REGISTRATIONS = "tests/unit/controller/test_registrations.py::"
_CLUSTER = "tests/unit/broker/test_cluster.py::"
_STORY = "tests/golden/test_controller_scripts.py::test_the_controller_decides_as_recorded"
_HANDLERS = "tests/unit/outbound/test_remote_controller.py::"

RACES = (
    # ------------------------------------------------------------------- who may be in an ISR
    Mutant(
        "rel-R1: the controller takes the incarnation that the leader heard from, and no other",
        "controller.isr_changes:_eligibility_problem",
        "broker_epoch not in (NO_BROKER_EPOCH, broker.epoch)",
        "False",
        tests=(
            _RACE + "test_row_4_b_is_unfenced_with_an_empty_disk_and_a_new_controller_is_asked",
        ),
    ),
    Mutant(
        "rel-R1: a fenced broker joins no ISR",
        "controller.isr_changes:_eligibility_problem",
        "broker.fenced",
        "False",
        tests=(_RACE + "test_row_2_b_is_dead_and_fenced_when_the_request_comes",),
    ),
    Mutant(
        "rel-R1: a broker on its way out joins no ISR",
        "controller.isr_changes:_eligibility_problem",
        "broker.in_controlled_shutdown",
        "False",
        tests=(_RACE + "test_row_8_b_is_on_its_way_out",),
    ),
    Mutant(
        "rel-R1, X19: a leader proposes the incarnation that its own image has",
        "replica.isr:ReplicaState.is_eligible",
        "self.broker_epoch in (NO_BROKER_EPOCH, fact.epoch)",
        "True",
        tests=(_RACE + "test_row_5_b_fetches_before_a_knows_its_new_epoch",),
    ),
    Mutant(
        "X19: the epoch that is proposed is the one that fetched",
        "replica.isr:ReplicaState.fetched",
        "self.broker_epoch = broker_epoch",
        "self.broker_epoch = self.broker_epoch or broker_epoch",
        tests=(_RACE + "test_row_7_b_has_caught_up_again_and_both_sides_know_its_new_epoch",),
    ),
    Mutant(
        "X20: a Fetch of a dead incarnation leaves no trace, on whole nodes",
        "replica.isr:is_stale",
        "fact.epoch > broker_epoch",
        "False",
        tests=(_RACE + "test_row_6_a_late_fetch_of_the_dead_incarnation_leaves_no_trace",),
    ),
    Mutant(
        "X21: a refused leader goes on with the ISR that it had",
        "replica.partition:Partition.altered",
        "is_refused(outcome.code)",
        "False",
        tests=(_RACE + "test_row_2_b_is_dead_and_fenced_when_the_request_comes",),
    ),
    Mutant(
        "X21: a leader of the past waits for metadata",
        "replica.partition:Partition.altered",
        "metadata_decides(outcome.code)",
        "self._set_isr(self.isr)",
        tests=(
            _RACE + "test_row_11_a_leads_no_more_and_keeps_its_proposal_until_metadata_says_so",
        ),
    ),
    Mutant(
        "rel-R7: a refusal after a request that was not answered is not the end of both",
        "replica.alter:AlterPartitions._answered",
        "partition.unanswered(change)",
        "pass",
        tests=(
            _RACE + "test_a_copy_that_arrives_after_the_refusal_of_the_next_one_loses_nothing",
            _RACE + "test_nothing_is_acknowledged_alone_while_a_copy_may_still_be_taken",
        ),
    ),
    Mutant(
        "rel-R7: a leader that asks for what is ends its earlier requests",
        "controller.isr_changes:_alter",
        "changes.restate(proposal.topic_id, proposal.partition)",
        "before",
        tests=(
            _RACE + "test_a_copy_that_arrives_after_the_refusal_of_the_next_one_loses_nothing",
            _ISR_CHANGES + "test_a_change_that_changes_nothing_ends_what_was_asked_before",
        ),
    ),
    Mutant(
        "I7: a new controller gives a fenced broker a session, too",
        "controller.brokers:Brokers.activate",
        "_has_left(image.brokers[each])",
        "image.brokers[each].fenced",
        tests=(
            _REGISTRATIONS
            + "test_the_living_keeps_its_place_over_a_change_of_the_controller_fenced_as_it_is",
        ),
    ),
    Mutant(
        "I7: a broker that left in order is not waited for",
        "controller.brokers:_has_left",
        "broker.fenced and broker.in_controlled_shutdown",
        "False",
        tests=(_REGISTRATIONS + "test_nor_for_one_that_left_when_another_controller_decided",),
    ),
    Mutant(
        "a broker whose place was taken says so",
        "broker.lifecycle:Lifecycle._heartbeat_failed",
        "self._is_superseded",
        "False",
        tests=(
            _CLUSTER
            + "test_a_broker_whose_place_was_taken_while_it_was_silent_says_so_and_stays_up",
        ),
    ),
    # ---------------------------------------------------------------------- the nine checks
    Mutant(
        "X24: a controller that is behind does not fence a leader",
        "controller.isr_changes:_epoch_problem",
        "if proposal.leader_epoch > before.leader_epoch:",
        "if False:",
        tests=(
            _ISR_CHANGES + "test_2_a_deposed_controller_does_not_fence_a_leader_that_knows_more",
        ),
    ),
    Mutant(
        "X24: a controller that is behind does not call a later partition epoch over",
        "controller.isr_changes:_epoch_problem",
        "if proposal.partition_epoch > before.partition_epoch:",
        "if False:",
        tests=(
            _ISR_CHANGES
            + "test_3_a_deposed_controller_does_not_refuse_a_later_partition_epoch_as_invalid",
        ),
    ),
    Mutant(
        "X24: a leader of an earlier epoch is told so",
        "controller.isr_changes:_epoch_problem",
        "if proposal.leader_epoch < before.leader_epoch:",
        "if False:",
        tests=(
            _RACE + "test_row_11_a_leads_no_more_and_keeps_its_proposal_until_metadata_says_so",
        ),
    ),
    Mutant(
        "X24: the worst is said first",
        "controller.isr_changes:_alter",
        "_epoch_problem(before, sender, proposal)\n        or _isr_problem(before, proposal)",
        "_isr_problem(before, proposal)\n        or _epoch_problem(before, sender, proposal)",
        tests=(_ISR_CHANGES + "test_the_worst_is_said_first",),
    ),
    Mutant(
        "X24: two changes from one state do not both win",
        "controller.isr_changes:_epoch_problem",
        "if proposal.partition_epoch < before.partition_epoch:",
        "if False:",
        tests=(_ISR_CHANGES + "test_6_two_changes_from_one_state_do_not_both_win",),
    ),
    Mutant(
        "X29: a reassignment that its leader does not survive is told as one",
        "controller.isr_changes:_alter",
        "if after.leader != sender:",
        "if False:",
        tests=(
            _ISR_CHANGES
            + "test_a_leader_that_its_reassignment_removed_is_notified_and_the_change_is_made",
        ),
    ),
    # ---------------------------------------------------------------- registrations and epochs
    Mutant(
        "rel-R3: a new incarnation has a new epoch, the offset of its record",
        "controller.brokers:Brokers.register",
        "epoch = next_offset + len(records)",
        "epoch = next_offset if existing is None else existing.epoch",
        tests=(_STORY + "[dead_incarnation]",),
    ),
    Mutant(
        "rel-R3: a request of a dead incarnation changes nothing",
        "controller.ids:epoch_problem",
        "broker.epoch != broker_epoch",
        "False",
        tests=(_RACE + "test_row_9_a_is_registered_again_itself",),
    ),
    Mutant(
        "rel-R3: the same incarnation keeps its epoch",
        "controller.brokers:Brokers.register",
        "existing.incarnation_id == wanted.incarnation_id",
        "False",
        tests=(_CLUSTER + "test_a_lost_answer_to_the_registration_gives_no_second_epoch",),
    ),
    Mutant(
        "rel-R4: a broker acts on no metadata from before its registration",
        "broker.lifecycle:Lifecycle.on_metadata",
        "elif self.stage is Stage.REGISTERED and image.offset >= self.broker_epoch:\n"
        "        return self._was_not_registered(now_ms)",
        "elif self.stage is Stage.REGISTERED:\n"
        "        self.stage = Stage.FENCED\n"
        "        return self._observer.broker_registered(self._applied, now_ms)",
        tests=(_CLUSTER + "test_nothing_is_hosted_before_the_image_has_the_registration",),
    ),
    Mutant(
        "rel-R4: older news takes nothing back",
        "replica.partition:Partition.update",
        "if leader_epoch < self.leader_epoch or partition_epoch < self.partition_epoch:",
        "if False:",
        tests=("tests/unit/replica/test_partition.py::test_older_news_takes_no_leadership_away",),
    ),
    Mutant(
        "X27: an incarnation waits until the session of the one before is over",
        "controller.brokers:Brokers._registration_problem",
        "and self._is_alive(wanted.broker_id, now_ms)",
        "and False",
        tests=(
            _CLUSTER + "test_a_broker_killed_and_started_at_once_waits_for_its_own_session_to_end",
        ),
    ),
    Mutant(
        "X27: what the dead incarnation was in sync with, the next one is not",
        "controller.brokers:Brokers.register",
        "not existing.fenced or self._sweeps.leaves(wanted.broker_id)",
        "False",
        tests=(
            "tests/unit/controller/test_race_table.py::test_row_13_b_is_dead_and_nobody_knows_yet",
        ),
    ),
    Mutant(
        "X27: nor what it was in sync with and did not lose yet",
        "controller.brokers:Brokers.register",
        " or self._sweeps.leaves(wanted.broker_id)",
        "",
        tests=(
            "tests/unit/controller/test_sweeps.py::"
            "test_the_next_incarnation_does_not_lead_what_the_dead_one_did_not_lose_yet",
        ),
    ),
    Mutant(
        "X27: a broker is unfenced once it has seen its own registration",
        "controller.brokers:Brokers._next_state",
        "and heartbeat.metadata_offset >= broker.epoch",
        "",
        tests=(_STORY + "[registration]",),
    ),
    Mutant(
        "X28: a broker goes when all others know that it leads nothing",
        "controller.brokers:Brokers._next_state",
        "and self._has_everybody_seen(image, broker)",
        "",
        tests=(_STORY + "[shutdown]",),
    ),
    Mutant(
        "X28: the offset that all must have seen is fixed once",
        "controller.brokers:Brokers.heartbeat",
        "self._shutdown_offsets.setdefault(heartbeat.broker_id, next_offset)",
        "self._shutdown_offsets[heartbeat.broker_id] = next_offset",
        tests=(_STORY + "[shutdown]",),
    ),
    Mutant(
        "I6: a session does not wait behind a change of an ISR",
        "outbound.remote_controller:_heartbeat",
        ", channel=CHANNEL",
        "",
        tests=(_HANDLERS + "test_a_heartbeat_never_waits_behind_a_change_of_an_isr",),
    ),
)
