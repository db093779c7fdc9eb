"""Opens the object store of a URI. WORLD.

Libraries of stores are loaded only for the store that needs one.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from firnline.base.errors import ConfigError
from firnline.stores.directory import DirectoryStore
from firnline.stores.port import ObjectStore, RemoteStorageError

# The settings of a tier that are the store's begin with this; `rsm.config.` stands before it.
STORE_PREFIX = "store."
_CLOUD = ("s3", "gs", "az")
URI_FORMS = (
    "a directory, file:///path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix,"
    " hdfs://host:port/path"
)


def open_store(
    uri: str,
    settings: Mapping[str, str] | None = None,
    *,
    is_writer: bool = True,
    is_new: bool = True,
    hidden: Collection[str] = (),
) -> ObjectStore:
    """Open the object store of `uri`, one of URI_FORMS. Raises ConfigError.

    Readers outside the cluster pass `is_writer=False`. `is_new` False: the cluster has used the store before,
    so that a directory has to exist; RemoteStorageError if it does not.

    settings  for the store's client library, without `rsm.config.store.`
    hidden    texts that no error of the store may repeat, beside the settings that are secrets by their name
    """
    path = path_of(uri)
    if path is not None:
        if settings:
            raise ConfigError(
                "a directory has no settings of a store", found=", ".join(sorted(settings))
            )
        return DirectoryStore(path, is_writer=is_writer, is_new=is_new)
    scheme = uri.partition("://")[0]
    if scheme in _CLOUD:
        from firnline.stores.cloud import CloudStore

        return CloudStore(uri, settings or {}, hidden)
    if scheme == "hdfs":
        from firnline.stores.hdfs import HdfsStore

        return HdfsStore(uri, settings or {}, hidden)
    raise ConfigError(
        f"no store for {scheme}:// is built in",
        remedy=f"use {URI_FORMS}; or name a class of your own with remote.log.storage.manager.class.name",
    )


def store_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the store among those of a tier, without their prefix."""
    return {
        key.removeprefix(STORE_PREFIX): value
        for key, value in settings.items()
        if key.startswith(STORE_PREFIX)
    }


def path_of(uri: str) -> str | None:
    """Return the directory of `file:///path` or of a plain path; None for another scheme."""
    if uri.startswith("file:"):
        rest = uri.removeprefix("file:")
        if rest.startswith("//"):
            host, _, path = rest[2:].partition("/")
            if host not in ("", "localhost"):
                raise RemoteStorageError("a file URI names a path of this machine", uri=uri)
            rest = "/" + path
        return str(Path(rest))
    return None if "://" in uri else str(Path(uri).expanduser())


def enclosing(uri: str) -> list[str]:
    """Return the URIs of the prefixes that `uri` is below, the nearest first; none for a directory."""
    if path_of(uri) is not None:
        return []
    scheme, _, rest = uri.partition("://")
    bucket, *pieces = (piece for piece in rest.split("/") if piece)
    lowest = 1 if scheme == "hdfs" else 0  # the root of HDFS cannot be a tier
    return [
        f"{scheme}://{'/'.join((bucket, *pieces[:count]))}"
        for count in range(len(pieces) - 1, lowest - 1, -1)
    ]
