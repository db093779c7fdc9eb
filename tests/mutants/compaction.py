"""Guards of compaction. As in `table`."""

from tests.mutants.clusters import SEEDS
from tests.mutants.patch import Mutant

_LOG = "tests/unit/log/test_compaction.py::"
_SWAP = "tests/unit/log/test_swap.py::"
_NODE = "tests/unit/replica/test_compacting.py::"

COMPACTION = (
    Mutant(
        "rel-C10, in a cluster: nothing above the last stable offset is compacted",
        "log.compaction.state:Compaction.log_to_clean",
        "log.last_stable_offset",
        "log.log_end_offset",
        seeds=SEEDS,
        seconds=25,
        profile="compacted",
        invariants=("rel-C10", "rel-R5", "rel-R9"),
    ),
    Mutant(
        "compaction: a round that began before a truncation is void",
        "log.compaction.state:Compaction.put",
        "cuts != self.cuts",
        "False",
        tests=(_LOG + "test_a_round_that_began_before_a_truncation_is_void",),
    ),
    Mutant(
        "compaction: nothing is touched that the checkpoint does not vouch for",
        "log.compaction.state:Compaction.log_to_clean",
        "log.recovery_start",
        "log.recovery_point",
        tests=(_LOG + "test_what_a_checkpoint_does_not_vouch_for_is_not_compacted",),
    ),
    Mutant(
        "compaction: an old index of transactions goes with its segment",
        "log.compaction.rounds:_CleanedSegment.finish",
        "aborted or self._has_old_txns",
        "aborted",
        tests=(_SWAP + "test_markers_and_their_index_come_and_go_together",),
    ),
    Mutant(
        "compaction: a swap that is not decided is undone",
        "log.compaction.swap:finish_renames",
        ">= undecided",
        "> undecided",
        tests=(_SWAP + "test_a_swap_without_its_batches_is_undone",),
    ),
    Mutant(
        "compaction: a round that is overtaken changes nothing",
        "replica.compacting:Compacting._on_group",
        "if self._stands(running):",
        "if True:",
        tests=(_NODE + "test_a_round_of_a_topic_that_is_to_be_compacted_no_more_changes_nothing",),
    ),
)
