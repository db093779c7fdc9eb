"""Opens the object store of a URI. WORLD."""

from pathlib import Path

from firnline.base.errors import ConfigError
from firnline.stores.directory import DirectoryStore
from firnline.stores.port import ObjectStore, RemoteStorageError


def open_store(uri: str, *, is_writer: bool = True, is_new: bool = True) -> ObjectStore:
    """Open the object store of `uri`: a plain path, or file:///path. Raises ConfigError.

    Readers outside the cluster pass `is_writer=False`. `is_new` False: the cluster has used the store before,
    so it has to exist; RemoteStorageError if it does not.
    """
    path = path_of(uri)
    if path is None:
        scheme = uri.partition("://")[0]
        raise ConfigError(
            f"no store for {scheme}:// is built in: use a directory, or name a class of your own "
            "with remote.log.storage.manager.class.name",
            uri=uri,
        )
    return DirectoryStore(path, is_writer=is_writer, is_new=is_new)


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
