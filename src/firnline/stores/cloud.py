"""S3, Google Cloud Storage and Azure Blob Storage, through obstore. WORLD.

obstore is loaded with the first store. A process that has used it must not fork: a forked child hangs with
its first request. Source: ecosystem 1.1, 1.2; decision 0036.
"""

import os
import re
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from firnline.base.errors import ConfigError, StorageError
from firnline.base.ports import Buffer
from firnline.base.units import MIB
from firnline.config.providers import Redaction
from firnline.stores.port import (
    PAGE_OBJECTS,
    NewObject,
    ObjectInfo,
    ObjectMissing,
    ObjectStat,
    RemoteStorageError,
    StoreRefused,
    delete_each,
)
from firnline.stores.side_by_side import put_last_alone
from firnline.stores.uploads import Uploads

# Settings of our own, beside those of obstore.
PART_BYTES_KEY = "part_size"
RETRIES_KEY = "max_retries"
_PART_BYTES = 8 * MIB
_PART_BYTES_MIN = 5 * MIB  # S3 refuses smaller ones, but for the last
# How many parts of one object are on their way at the same time; with the part size, its memory.
_PARTS_AT_ONCE = 2
# A request that fails for a moment is repeated once. All else is for the caller, who knows how long to wait.
_RETRIES = 1
_BACKOFF_S = 0.1
_RETRY_S = 30.0
# Of the library's threads.
_NICER = 10
# How long one request may take, with all of its body: a part in this time needs 280 KiB/s.
_DEFAULTS = {"timeout": "30s", "connect_timeout": "5s"}
# obstore's options of the HTTP client; all other settings are those of the store.
_CLIENT_KEYS = {
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only"),
    *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate"),
    *("proxy_excludes", "randomize_addresses", "read_timeout", "root_certificate", "timeout"),
    "user_agent",
}
_FLAGS = {
    *("allow_http", "allow_invalid_certificates", "http1_only", "http2_only"),
    "randomize_addresses",
}
# Only with one of these codes does "404" mean that the object does not exist. A bucket that is gone, or a
# proxy that knows no such page, must not look like an empty tier.
_MISSING = ("NoSuchKey", "BlobNotFound", "NoSuchObject")
_SKEWED = ("RequestTimeTooSkewed", "RequestExpired")
_CODE = re.compile(r"<Code>(\w+)</Code>(?:\s*<Message>([^<]{1,300}))?")
_QUERY = re.compile(r"\?[^\s)]+")
_STATUS = re.compile(r"status code: (\d{3})")
_SECRET_WORDS = ("secret", "token", "password", "key", "sas", "credential", "service_account")
# With one of these at its end, a setting says where or of whom a secret is.
_NO_SECRETS = (
    *("_id", "_file", "_path", "_uri", "_endpoint", "_enabled"),
    *("service_account", "application_credentials"),
)


class Scheme(NamedTuple):
    """A kind of store: obstore's class, and what it calls the first part of the URI."""

    class_name: str
    bucket: str  # "bucket" or "container"
    endpoint_keys: tuple[str, ...]
    variables: str  # the prefix of its environment variables
    fixed: Mapping[str, str]


SCHEMES = {
    # The store compares the checksum of each part with what it received.
    "s3": Scheme(
        *("S3Store", "bucket", ("endpoint", "endpoint_url"), "AWS_"),
        {"checksum_algorithm": "sha256"},
    ),
    "gs": Scheme("GCSStore", "bucket", (), "GOOGLE_", {}),
    "az": Scheme("AzureStore", "container", ("endpoint", "storage_endpoint"), "AZURE_", {}),
}


class CloudStore:
    """An `ObjectStore` in a bucket or container, below a prefix."""

    calls_at_once = 6
    is_distant = True
    has_uploads = True

    def __init__(self, uri: str, settings: Mapping[str, str], hidden: Collection[str] = ()) -> None:
        """Open the store of `s3://bucket/prefix`, `gs://...` or `az://container/prefix`.

        settings  those of the client library, by its names (endpoint, region, access_key_id, ...), and
                  `part_size` in bytes
        hidden    further texts that no error may repeat

        Raises ConfigError. It speaks to the store with the first request only.
        """
        parts = urlsplit(uri)
        bucket, prefix = parts.netloc, parts.path.strip("/")
        scheme = SCHEMES[parts.scheme]
        if not bucket or "@" in bucket or parts.query or parts.fragment:
            raise ConfigError(
                f"a tier is written {parts.scheme}://{scheme.bucket}/prefix, and credentials are settings"
                " of their own (rsm.config.store.*)"
            )
        self.uri = f"{parts.scheme}://{bucket}/{prefix}"
        given = {key.replace(".", "_"): value for key, value in settings.items()}
        self._without_secrets = Redaction([*secrets_of(given), *hidden])
        self._part_bytes = _part_bytes(given.pop(PART_BYTES_KEY, None))
        self._uploads = None
        self._obstore, self._store = _opened(parts.scheme, bucket, prefix, dict(given))
        if parts.scheme == "s3":
            self._uploads = Uploads.of(bucket, prefix, given)

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        """See `ObjectStore`. An object larger than a part goes in parts, and appears with the last."""
        with self._calls("write to", key):
            if size_bytes <= self._part_bytes:
                data = b"".join(_measured(chunks, key, size_bytes))
                self._obstore.put(self._store, key, data, use_multipart=False)
            else:
                self._obstore.put(
                    self._store,
                    key,
                    _measured(chunks, key, size_bytes),
                    chunk_size=self._part_bytes,
                    max_concurrency=_PARTS_AT_ONCE,
                )

    def put_together(self, objects: Sequence[NewObject]) -> None:
        """See `ObjectStore`."""
        put_last_alone(self, objects)

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """See `ObjectStore`."""
        if size_bytes is not None:
            return bytes(self.view(key, position, size_bytes))
        options = {"range": {"offset": position}} if position else None
        with self._calls("read from", key), self._ends():
            return bytes(self._obstore.get(self._store, key, options=options).bytes())
        return b""

    def view(self, key: str, position: int, size_bytes: int) -> Buffer:
        """See `Views`."""
        if not size_bytes:
            return b""
        with self._calls("read from", key), self._ends():
            return memoryview(
                self._obstore.get_range(self._store, key, start=position, length=size_bytes)
            )
        return b""

    @contextmanager
    def _ends(self) -> Iterator[None]:
        """End the block without an error if the range begins at the end of the object or behind it."""
        try:
            yield
        except self._obstore.exceptions.GenericError as problem:
            if not _is_behind_the_end(str(problem)):
                raise

    def stat(self, key: str) -> ObjectStat:
        """See `ObjectStore`."""
        with self._calls("read from", key):
            try:
                found = self._obstore.head(self._store, key)
            except FileNotFoundError:
                # The answer to HEAD has no body that could say what is missing.
                self._obstore.get_range(self._store, key, start=0, length=1)
                found = self._obstore.head(self._store, key)
        modified_ms = int(found["last_modified"].timestamp() * 1000)
        return ObjectStat(found["size"], modified_ms, found["e_tag"])

    def pages(self, folder: str, after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `ObjectStore`."""
        assert folder.endswith("/"), "a prefix is a folder"
        with self._calls("list", folder):
            listed = iter(
                self._obstore.list(
                    self._store, folder, offset=after or None, chunk_size=PAGE_OBJECTS
                )
            )
        while True:
            with self._calls("list", folder):
                page = next(listed, None)
            if page is None:
                return
            yield sorted(ObjectInfo(each["path"], each["size"]) for each in page)

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        """See `ObjectStore`."""
        return sorted(info for page in self.pages(prefix) for info in page)

    def delete(self, key: str) -> None:
        """See `ObjectStore`."""
        self.delete_many((key,))

    def delete_many(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        failure: RemoteStorageError | None = None
        for start in range(0, len(keys), PAGE_OBJECTS):
            some = list(keys[start : start + PAGE_OBJECTS])
            try:
                with self._calls("delete from", some[0]):
                    try:
                        self._obstore.delete(self._store, some)
                    except FileNotFoundError:  # not S3's: there it succeeds for what does not exist
                        self._delete_singly(some)
            except RemoteStorageError as problem:
                failure = failure or problem
        if failure is not None:
            raise failure

    def _delete_singly(self, keys: list[str]) -> None:
        # The answer does not say whether the object or all of the container is missing; that to GET does.
        with suppress(ObjectMissing):
            self.get(keys[0], 0, 1)
        delete_each(self._delete_if_there, keys)

    def _delete_if_there(self, key: str) -> None:
        with self._calls("delete from", key), suppress(FileNotFoundError):
            self._obstore.delete(self._store, key)

    def abort_unfinished(self, older_than_s: float, prefix: str = "") -> int:
        """See `ObjectStore`. On S3 only: Azure discards parts after a week; Google Cloud needs a rule."""
        if self._uploads is None:
            return 0
        with self._calls("list uploads of", self.uri):
            return self._uploads.abort(older_than_s, prefix)

    def close(self) -> None:
        """Do nothing: connections end with the process."""

    @contextmanager
    def _calls(self, action: str, key: str) -> Iterator[None]:
        """Turn what the client raises into our errors, without secrets."""
        try:
            yield
        except (StorageError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as problem:  # noqa: BLE001 - a panic in Rust is not an Exception
            raise self._problem(problem, action, key) from None

    def _problem(self, problem: BaseException, action: str, key: str) -> StorageError:
        text = str(problem)
        kind = type(problem).__name__
        found = _CODE.search(text)
        code = found[1] if found else ""
        if isinstance(problem, FileNotFoundError) and code in _MISSING:
            return ObjectMissing("no such object in the tier", key=key)
        said = f"{found[1]}: {found[2] or ''}" if found else text.partition("\n")[0]
        # A URL may have a signature in its query.
        said = " ".join(_QUERY.sub("?[hidden]", said).split())[:300]
        said = self._without_secrets(said)
        where = {"tier": self.uri, "key": key, "store": said.strip(" :") or kind}
        if code in _SKEWED:
            return StoreRefused(
                f"cannot {action} the tier: the clock of this machine differs from the store's",
                **where,
                remedy="set the clock of this machine",
            )
        status = _status(text)
        if isinstance(problem, FileNotFoundError) or status == "404":
            return StoreRefused(
                f"cannot {action} the tier: the store has no such bucket or container", **where
            )
        if kind in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403"):
            return StoreRefused(
                f"cannot {action} the tier: the store refuses the credentials, or they lack the right",
                **where,
            )
        return RemoteStorageError(f"cannot {action} the tier", **where)


# A setting with one of these at its end is a secret that the store compares.
_COMPARED = ("secret_access_key", "account_key", "access_key", "master_key")


def secret_in_use(uri: str, settings: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (setting, value) of the secret that the store compares; None for a store that has none.

    It is one of `settings`, or an environment variable that the client library reads: then its lower-case
    name is the setting that overrides it.
    """
    scheme = SCHEMES.get(urlsplit(uri).scheme)
    if scheme is None:
        return None
    variables = {
        name.lower(): value
        for name, value in sorted(os.environ.items())
        if name.startswith(scheme.variables)
    }
    for key, value in [*settings.items(), *variables.items()]:
        if value and key.replace(".", "_").endswith(_COMPARED):
            return key, value
    return None


def secrets_of(settings: Mapping[str, str]) -> list[str]:
    """Return the values of settings that no message may repeat."""
    return [
        value
        for key, value in settings.items()
        if len(value) >= 4
        and not key.endswith("_id")
        and any(word in key for word in _SECRET_WORDS)
    ]


@cache
def _run_behind_others(obstore: Any, stores: Any) -> None:
    """Let the library's threads give way to those of the process that serve clients.

    They encrypt, sum and send segments, as fast as the store takes them. Threads inherit the niceness of the
    one that starts them, and the library starts its own with the first call.
    """

    def start() -> None:
        thread_id = threading.get_native_id()
        niceness = os.getpriority(os.PRIO_PROCESS, thread_id) + _NICER
        os.setpriority(os.PRIO_PROCESS, thread_id, min(niceness, 19))
        obstore.put(stores.MemoryStore(), "started", b"")

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()


def is_secret(key: str, value: str) -> bool:
    """Whether a setting holds a secret, by its name or because its value is a URL with one."""
    name = key.lower().replace(".", "_").replace("-", "_")
    if "://" in value:
        parts = urlsplit(value)
        return "@" in parts.netloc or bool(parts.query)
    return not name.endswith(_NO_SECRETS) and any(word in name for word in _SECRET_WORDS)


def _opened(scheme_name: str, bucket: str, prefix: str, given: dict[str, str]) -> tuple[Any, Any]:
    """Return obstore and its store."""
    try:
        import obstore
        from obstore import store as stores
    except ImportError:
        raise ConfigError(
            f"a tier on {scheme_name}:// needs the package obstore",
            remedy=f"pip install 'firnline[{scheme_name}]'",
        ) from None
    if sys.platform == "linux":  # elsewhere a process has one niceness, and no thread its own
        _run_behind_others(obstore, stores)
    scheme = SCHEMES[scheme_name]
    retries = given.pop(RETRIES_KEY, str(_RETRIES))
    if not retries.isdecimal():
        raise ConfigError(f"rsm.config.store.{RETRIES_KEY} is a number", value=retries)
    client: dict[str, object] = {**_DEFAULTS}
    client.update({key: given.pop(key) for key in sorted(given) if key in _CLIENT_KEYS})
    for key in _FLAGS & set(client):
        client[key] = str(client[key]).lower() == "true"
    # The library itself would take http:// only with one more setting.
    endpoints = [given.get(key) for key in scheme.endpoint_keys]
    endpoints += [os.environ.get(scheme.variables + key.upper()) for key in scheme.endpoint_keys]
    if next((each for each in endpoints if each), "").startswith("http://"):
        client.setdefault("allow_http", True)
    backoff = {
        "init_backoff": timedelta(seconds=_BACKOFF_S),
        "max_backoff": timedelta(seconds=1),
        "base": 2,
    }
    retry = {
        "max_retries": int(retries),
        "retry_timeout": timedelta(seconds=_RETRY_S),
        "backoff": backoff,
    }
    try:
        made = getattr(stores, scheme.class_name)(
            bucket,
            prefix=prefix or None,
            config={**scheme.fixed, **given},
            client_options=client,
            retry_config=retry,
        )
    except Exception as problem:  # noqa: BLE001 - each kind of bad setting has an exception of its own
        said = Redaction(secrets_of(given))(str(problem).partition("\n")[0])
        raise ConfigError(f"rsm.config.store.*: {said}") from None
    return obstore, made


def _part_bytes(text: str | None) -> int:
    if text is None:
        return _PART_BYTES
    if not text.isdecimal() or int(text) < _PART_BYTES_MIN:
        raise ConfigError(
            f"rsm.config.store.part.size is a number of bytes, at least {_PART_BYTES_MIN}",
            value=text,
        )
    return int(text)


def _measured(chunks: Iterable[Buffer], key: str, size_bytes: int) -> Iterator[bytes]:
    """Yield the chunks; raise at the end if they have another length in all, which ends the put."""
    done = 0
    for chunk in chunks:
        data = bytes(chunk)
        done += len(data)
        if done > size_bytes:
            break
        yield data
    if done != size_bytes:
        raise RemoteStorageError(
            "the object has another length than announced", key=key, announced=size_bytes, got=done
        )


def _is_behind_the_end(text: str) -> bool:
    """Return whether the store refused a range that begins at the end of the object or behind it (T58)."""
    # Azurite answers with an empty part of the object, which obstore refuses.
    return _status(text) == "416" or "Wanted range starting at" in text


def _status(text: str) -> str:
    found = _STATUS.search(text)
    return found[1] if found else ""
