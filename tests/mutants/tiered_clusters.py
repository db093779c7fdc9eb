"""Guards of the tier whose loss the simulator of clusters with a tier notices. As in `clusters`."""

from tests.mutants.patch import Mutant

# As there: one that came to it stands in front.
SEEDS = tuple(range(1, 21))

TIERED_CLUSTERS = (
    Mutant(
        "rel-T2, in a cluster: local records go when the tier has them",
        "tiered.copier:Copier._next_due",
        "hosted.log.set_highest_remote(covered)",
        "hosted.log.set_highest_remote(hosted.log.last_stable_offset - 1)",
        seeds=(2, *SEEDS),
        seconds=25,
        profile="tiered",
        invariants=("rel-T2",),
    ),
    Mutant(
        "rel-T4, in a cluster: a copy is announced before its objects are put",
        "tiered.copier:Copier._copy",
        "error: KafkaError | None = yield from run.call(partial(services.metadata.add, segment))",
        "error = None",
        seeds=SEEDS,
        seconds=25,
        profile="tiered",
        invariants=("rel-T4",),
    ),
    Mutant(
        "rel-T5, in a cluster: a copy is finished when all its objects are there",
        "tiered.objects.storage:ObjectStorage.copy_segment",
        "if source is not None\n",
        "if source is not None and suffix != LEADER_EPOCHS\n",
        seeds=SEEDS,
        seconds=25,
        profile="tiered",
        invariants=("rel-T5",),
        also=(
            Mutant(
                "the comparison with what was put",
                "tiered.objects.storage:_check",
                "found = stored_sum(store, key, expected.size_bytes)",
                "found = expected",
            ),
        ),
    ),
    Mutant(
        "rel-T12, in a cluster: each copy has an id of its own",
        "tiered.copier:Copier._new_segment",
        "segment_id=services.rng.uuid(),",
        'segment_id=local.base_offset.to_bytes(16, "big"),',
        seeds=SEEDS,
        seconds=40,
        profile="tiered",
        invariants=("rel-T12",),
    ),
    Mutant(
        "rel-T15, in a cluster: no byte is counted in both tiers",
        "tiered.expiry:_Walk._local_only_bytes",
        "max(self._tier.highest_offset() + 1, self._log.log_start_offset)",
        "self._log.first_base_offset",
        seeds=(3, *SEEDS),
        seconds=60,
        profile="tiered",
        invariants=("rel-T15",),
    ),
)
