"""Aborts uploads of killed brokers. STORE. Source: docs/formats/tier.md."""

from firnline.stores.port import ObjectStore, StoreRefused

# Longer than any copy may take (34 minutes for 2 GiB), and than clocks of brokers and store may differ.
UNFINISHED_HOURS = 24


def abort_unfinished(store: ObjectStore) -> int | str:
    """Abort old unfinished uploads; return how many, or why the store refused it.

    A refusal is no failure of the store: credentials that may write need not be allowed to list uploads.
    Raises RemoteStorageError from a store that fails.
    """
    try:
        return store.abort_unfinished(UNFINISHED_HOURS * 3600)
    except StoreRefused as problem:
        return str(problem)
