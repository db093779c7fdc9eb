"""Aborts uploads of killed brokers. STORE. Source: docs/formats/tier.md."""

from firnline.stores.port import ObjectStore, StoreRefused
from firnline.tiered.objects.layout import FOLDERS

# Longer than any copy may take (34 minutes for 2 GiB), and than clocks of brokers and store may differ.
UNFINISHED_HOURS = 24


def abort_unfinished(store: ObjectStore) -> int | str:
    """Abort old unfinished uploads; return how many, or why the store refused it.

    Uploads of other keys below the same prefix are not ours: a tier of another cluster may begin there.

    A refusal is no failure of the store: credentials that may write need not be allowed to list uploads.
    Raises RemoteStorageError from a store that fails.
    """
    folders = FOLDERS if store.has_uploads else ("",)
    try:
        return sum(store.abort_unfinished(UNFINISHED_HOURS * 3600, each) for each in folders)
    except StoreRefused as problem:
        return str(problem)
