"""Guards of fast copies to the tier and of reads ahead, and the tests that miss them. See `table`."""

from tests.mutants.patch import Mutant

_TOGETHER = "tests/unit/stores/test_put_together.py::"
_STORES = "tests/unit/tiered/test_tiered_stores.py::"
_COPY = "tests/unit/tiered/test_tiered_copy.py::"

TIER_SPEED = (
    Mutant(
        "F6: the log gets its name when all others survive a power cut",
        "stores.directory:_rename_all",
        "is_last and number",
        "False",
        tests=(_TOGETHER + "test_the_log_gets_its_name_when_all_others_survive_a_power_cut",),
    ),
    Mutant(
        "F6: objects whose folder vanished are not taken for stored",
        "stores.directory:DirectoryStore.put_together",
        " or (any(written) and not all(written))",
        "",
        tests=(
            _TOGETHER + "test_objects_whose_folder_vanishes_under_them_are_not_taken_for_stored",
        ),
    ),
    Mutant(
        "F6: where puts are visible when they end, the log is put when all others are there",
        "stores.side_by_side:put_last_alone",
        "*others, last = (",
        "last, *others = (",
        tests=(
            _TOGETHER + "test_where_a_put_is_visible_when_it_ends_the_last_begins_when_all_others"
            "_have_ended",
        ),
    ),
    Mutant(
        "F6: what the kernel copies is compared, or goes through the chunks",
        "tiered.objects.storage:ObjectStorage.copy_segment",
        "known is None",
        "False",
        tests=(
            _STORES + "test_a_log_without_a_fingerprint_goes_through_the_chunks_which_are_checked",
        ),
    ),
    Mutant(
        "nothing is written behind a part that the kernel has copied",
        "stores.directory:_copy_in_kernel",
        "copied or problem",
        "problem",
        tests=(_TOGETHER + "test_a_disk_that_is_full_while_the_kernel_copies_says_so",),
    ),
    Mutant(
        "a large object is synced in pieces",
        "stores.directory:_copy_in_kernel",
        "os.fdatasync(target)",
        "pass",
        tests=(
            _TOGETHER + "test_a_large_object_is_synced_in_pieces_so_that_other_syncs_do_not_wait"
            "_for_all_of_it[True]",
        ),
    ),
    Mutant(
        "no change of the configuration but that of copies begins a copy",
        "tiered.remote_log:RemoteLog._configured",
        "and not could_copy",
        "",
        tests=(_COPY + "test_what_waits_is_copied_at_once_when_copies_are_enabled",),
    ),
)
