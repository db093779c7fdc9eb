"""Guards of replicas whose loss the simulator of clusters notices, each under its profile. As in `table`.

The same guards have mutants in `replicas` and `races` that directed tests catch: a test says what a guard is
for, a seed that without it a cluster comes to where it loses what it promised.
"""

from tests.mutants.patch import Mutant

# One after the other until a guard is missed: what a seed comes to changes with the code.
SEEDS = tuple(range(1, 31))

CLUSTERS = (
    Mutant(
        "rel-R1, in a cluster: who joins is the incarnation that the leader heard from",
        "controller.isr_changes:_eligibility_problem",
        "broker_epoch not in (UNKNOWN_EPOCH, broker.epoch)",
        "False",
        seeds=SEEDS,
        seconds=25,
        profile="r1",
        invariants=("rel-R1",),
    ),
    Mutant(
        "rel-R3, in a cluster: a request of an older incarnation is refused",
        "controller.ids:epoch_problem",
        "broker.epoch != broker_epoch",
        "False",
        seeds=SEEDS,
        seconds=25,
        profile="r3",
        invariants=("rel-R3",),
    ),
    Mutant(
        "rel-R4, in a cluster: metadata is acted on once it has the own registration",
        "broker.lifecycle:Lifecycle.on_metadata",
        "self._image().offset >= self.broker_epoch",
        "True",
        seeds=SEEDS,
        seconds=25,
        profile="r4",
        invariants=("rel-R4",),
    ),
    Mutant(
        "rel-R6, in a cluster: who is to join counts at once",
        "replica.partition:Partition._expand",
        "self.maximal_isr = tuple(dict.fromkeys((*self.maximal_isr, broker_id)))",
        "pass",
        seeds=SEEDS,
        seconds=25,
        profile="r6",
        invariants=("rel-R6",),
    ),
    Mutant(
        "rel-R6, in a cluster: who is to leave counts until the controller agreed",
        "replica.partition:Partition.shrink",
        "self._propose(stay)",
        "self._propose(stay); self.maximal_isr = tuple(stay)",
        seeds=SEEDS,
        seconds=25,
        profile="r6",
        invariants=("rel-R6",),
    ),
    Mutant(
        "rel-R6, in a cluster: the watermark waits for all of the ISR",
        "replica.partition:Partition._advance_high_watermark",
        "follower.broker_id in self.maximal_isr",
        "False",
        seeds=SEEDS,
        seconds=25,
        profile="r6",
        invariants=("rel-R6",),
    ),
    Mutant(
        "rel-R7, in a cluster: a proposal is given up on a refusal alone",
        "replica.partition:Partition.altered",
        "is_refused(outcome.code)",
        "True",
        seeds=SEEDS,
        seconds=25,
        profile="r7",
        invariants=("rel-R7",),
    ),
    Mutant(
        "rel-R8, in a cluster: a joiner has reached the watermark",
        "replica.partition:Partition._expand",
        "follower.end_offset < max(self.log.high_watermark, self.epoch_start_offset)",
        "False",
        seeds=SEEDS,
        seconds=25,
        profile="r8",
        invariants=("rel-R8",),
    ),
    Mutant(
        "rel-R13, in a cluster: acks=all asks for an ISR that is large enough",
        "replica.partition:Partition.append",
        "len(self.isr) < self.min_isr",
        "False",
        seeds=SEEDS,
        seconds=25,
        profile="r13",
        invariants=("rel-R13",),
    ),
    Mutant(
        "rel-R5, in a cluster: who is not in sync leads only where the settings say so",
        "controller.partition_change:PartitionChanges.is_unclean_allowed",
        "return self._is_unclean_by_default",
        "return True",
        seeds=SEEDS,
        seconds=25,
        profile="unclean",
        invariants=("rel-R5",),
    ),
    # What other topics may lose is no excuse: this one loses records of those that may not, and says nothing.
    Mutant(
        "rel-R5, in a cluster: a clean election finds nobody outside the ISR",
        "controller.partition_change:elect",
        "return Found(NO_LEADER, False)",
        "return Found(next(filter(may_lead, replicas), NO_LEADER), False)",
        seeds=SEEDS[1:],  # by the first the partition only stays without its followers
        seconds=25,
        profile="unclean",
        invariants=("rel-R5",),
    ),
    # Either of the two is enough.
    Mutant(
        "KAFKA-18723, in a cluster: no answer carries records that came into the place of its own",
        "log.segment:Segment.cut_to",
        "self.cut_off(position)",
        "pass",
        seeds=(7, *SEEDS),
        seconds=25,
        profile="late-answers",
        invariants=("rel-R15", "rel-R9", "rel-R11"),
        also=(
            Mutant(
                "a follower takes nothing that its leader cannot have",
                "records.validate:judge_fetched",
                "epoch > leader_epoch",
                "False",
            ),
        ),
    ),
    Mutant(
        "rel-R7, in a cluster: a refusal of the second copy says nothing of the first",
        "replica.alter:AlterPartitions._answered",
        "partition.unanswered(change)",
        "pass",
        seeds=(3, 13, 18, *SEEDS),
        seconds=75,
        profile="late-copies",
        invariants=("rel-R2", "rel-R6"),
    ),
)
