"""Binds a tier to one cluster, by an object that the first use creates. STORE.

If a node has records of a tier, an empty store without that object is another one: an unmounted disk, a new
bucket, a wrong path. It is refused before a leader concludes that the tier has no segments. Source:
docs/formats/tier.md.
"""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from firnline.base.errors import StorageError
from firnline.stores.port import (
    CLUSTER_KEY,
    ObjectMissing,
    ObjectStore,
    RemoteStorageError,
    StoreRefused,
)
from firnline.tiered.objects.layout import FOLDERS

VERSION = 1


class WrongTier(StorageError):
    """The store is not this cluster's tier: nothing in it is read, written or deleted."""


class Binding(NamedTuple):
    """The cluster to which a store has to belong.

    is_in_use  this node has records of segments in its tier: so the tier is not empty
    uri        for messages to the operator
    above      opens the prefixes that the tier is below, by URI
    """

    cluster_id: str
    is_in_use: bool
    uri: str
    above: Callable[[], Sequence[tuple[str, ObjectStore]]] = tuple


def binding_text(cluster_id: str) -> str:
    """Return the content of the object."""
    body = {"firnline": "tier", "version": VERSION, "clusterId": cluster_id}
    return json.dumps(body, separators=(",", ":"))


def bind(store: ObjectStore, binding: Binding) -> None:
    """Check that the store belongs to this cluster; bind it if it belongs to none yet.

    Raises WrongTier; RemoteStorageError from a store that does not answer.
    """
    if _is_ours(store, binding.cluster_id, binding.uri):
        return
    if binding.is_in_use and is_empty(store):
        raise WrongTier(
            "the tier is empty, and this node has records of segments in its tier",
            tier=binding.uri,
            remedy="mount it, or name the one that this cluster has used; or, to go on without that history,"
            f" put {CLUSTER_KEY} there with this line: {binding_text(binding.cluster_id)}",
        )
    _refuse_nested(binding)
    data = binding_text(binding.cluster_id).encode() + b"\n"
    store.put(CLUSTER_KEY, (data,), size_bytes=len(data))


def _refuse_nested(binding: Binding) -> None:
    """Raise WrongTier if the tier lies below that of another cluster: whoever removes that removes both.

    A prefix that these credentials may not read is not checked; nor is a tier below this one, which only a
    listing of everything would find.
    """
    for uri, store in binding.above():
        try:
            owner = read_owner(store)
        except StoreRefused:
            continue
        finally:
            store.close()
        if owner not in (None, binding.cluster_id):
            raise WrongTier(
                "the tier would lie within that of another cluster",
                tier=binding.uri,
                within=uri,
                found=owner,
                expected=binding.cluster_id,
                remedy="give each cluster a prefix that is not below another one's",
            )


def read_owner(store: ObjectStore) -> str | None:
    """Return the id of the cluster to which a store belongs; None: to none, or to something else."""
    try:
        return str(json.loads(store.get(CLUSTER_KEY))["clusterId"])
    except (ObjectMissing, ValueError, KeyError, TypeError, RecursionError):
        return None


def check_bound(store: ObjectStore, cluster_id: str) -> None:
    """Check that the store still belongs to this cluster. Raises WrongTier; RemoteStorageError."""
    if not _is_ours(store, cluster_id):
        raise WrongTier(
            f"the tier has lost {CLUSTER_KEY}, which says whose it is: was it emptied, or changed?",
            remedy="bring its objects back; the next start says what to do if there are none",
        )


def _is_ours(store: ObjectStore, cluster_id: str, uri: str = "") -> bool:
    """Whether the store belongs to this cluster; False: to none. Raises WrongTier for another."""
    try:
        data = store.get(CLUSTER_KEY)
    except ObjectMissing:
        return False
    try:
        found = json.loads(data)
        owner, version = str(found["clusterId"]), int(found["version"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise WrongTier(
            "the object that names the cluster of this tier is damaged",
            tier=uri,
            key=CLUSTER_KEY,
            remedy=f"if it is this cluster's, let it say: {binding_text(cluster_id)}",
        ) from None
    if owner != cluster_id:
        raise WrongTier(
            "the tier belongs to another cluster",
            tier=uri,
            found=owner,
            expected=cluster_id,
            remedy="give each cluster a tier of its own",
        )
    if version > VERSION:
        raise RemoteStorageError("the tier was used by a newer Firnline", version=version)
    return True


def is_empty(store: ObjectStore) -> bool:
    """Whether the store has no objects of any topic."""
    return not any(map(store.list_prefix, FOLDERS))
