"""`firnline tier check` on a user's own class, and with a secret from the environment."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firnline.base.errors import ConfigError
from firnline.base.ids import Uuid
from firnline.cli.show import SOMETHING_IS_WRONG
from firnline.cli.tier import check as module
from firnline.cli.tier.check import check
from firnline.cli.tier.storage_check import StorageCheck
from firnline.cli.tier.store import tier_config
from firnline.server.plugins import own_storage
from firnline.stores.port import ObjectMissing, RemoteStorageError
from firnline.stores.registry import open_store
from firnline.tiered.spi import IndexKind, RemoteSegment, SegmentData

FOLDER = str(Path(__file__).parents[2] / "data" / "plugins")
SECRET = "hunter2-hunter2"
CLASS = "remote.log.storage.manager.class.name"


@pytest.fixture(autouse=True)
def _search_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def checked(directory: Path, *words: str, **stated: str) -> Result:
    """Run the command with a server.properties that names a class in FOLDER, and what else is stated."""
    keys = {
        "remote.log.storage.manager.class.path": FOLDER,
        "log.dirs": str(directory / "log"),
        "node.id": "4",
    }
    file = directory / "server.properties"
    keys |= {name.replace("_", "."): value for name, value in stated.items()}
    file.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
    return CliRunner().invoke(check, ["--config", str(file), *words])


def refusal(done: Result) -> str:
    assert isinstance(done.exception, ConfigError)
    return str(done.exception)


# ------------------------------------------------------------------------------------ which store it is


def test_a_class_that_does_not_exist_is_an_error_and_no_other_store_is_checked(
    tmp_path: Path,
) -> None:
    uri = str(tmp_path / "tier")
    done = checked(tmp_path, rsm_config_uri=uri, **{CLASS: "own_tier.Nowhere"})
    assert "own_tier.Nowhere: module 'own_tier' has no attribute 'Nowhere'" in refusal(done)
    done = checked(tmp_path, rsm_config_uri=uri, **{CLASS: "nowhere.Store"})
    assert "No module named 'nowhere'" in refusal(done)
    assert not (tmp_path / "tier").exists()


def test_a_class_of_a_user_is_loaded_configured_and_checked(tmp_path: Path) -> None:
    done = checked(tmp_path, "--format", "json", **{CLASS: "own_tier.InMemory"})
    assert done.exit_code == 0, done.output
    names = [row["check"] for row in json.loads(done.output)]
    assert "a copied segment can be read, complete" in names
    assert "100 small segments, 8 threads" in names
    done = checked(
        tmp_path,
        **{
            CLASS: "own_tier.InMemory",
            "rsm.config.fail": "configure",
            "rsm.config.password": SECRET,
        },
    )
    assert "it cannot be configured: RuntimeError: cannot sign in with [hidden]" in refusal(done)


def test_a_class_made_of_the_built_in_one_has_its_object_store_checked_too(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    stated = {CLASS: "own_tier.Talkative", "rsm.config.uri": str(tier)}
    done = checked(tmp_path, "--format", "json", **stated)
    assert done.exit_code == 0, done.output
    names = [row["check"] for row in json.loads(done.output)]
    assert "1050 small objects, in pages" in names
    assert "several segments deleted together" in names
    assert [path.name for path in tier.rglob("*") if path.is_file()] == [".firnline-tier"]
    stated |= {"rsm.config.fail": "copy", "rsm.config.password": SECRET}
    done = checked(tmp_path, **stated)
    assert done.exit_code == SOMETHING_IS_WRONG
    assert "the store refused" in done.output
    assert SECRET not in done.output


def test_a_class_and_a_uri_are_refused_together(tmp_path: Path) -> None:
    done = checked(tmp_path, str(tmp_path / "tier"), **{CLASS: "own_tier.InMemory"})
    assert "leave out" in refusal(done)


def test_the_built_in_class_is_checked_by_its_uri_and_wrong_keys_are_refused(
    tmp_path: Path,
) -> None:
    stated = {CLASS: "firnline.tiered.objects.storage.ObjectStorage"}
    done = checked(tmp_path, **stated, rsm_config_uri=str(tmp_path / "tier"))
    assert done.exit_code == 0, done.output
    assert "1050 small objects" in done.output
    done = checked(tmp_path, **stated, rsm_config_urii="x")
    assert (
        "rsm.config.urii is not a setting of the built-in store: is it rsm.config.uri?"
        in refusal(done)
    )
    done = checked(tmp_path, rsm_config_sore_region="x")
    assert "is it rsm.config.store.*?" in refusal(done)


def test_settings_that_do_not_concern_the_store_need_not_be_complete_or_right(
    tmp_path: Path,
) -> None:
    stated = {"rsm.config.uri": str(tmp_path / "tier"), "num.partitions": "many"}
    assert checked(tmp_path, **stated).exit_code == 0


# --------------------------------------------------------------------------------- what the suite finds


def store(directory: Path) -> Any:
    pairs = (f"{CLASS}=own_tier.InMemory", f"remote.log.storage.manager.class.path={FOLDER}")
    return own_storage(tier_config((*pairs, f"log.dirs={directory}"), None))


def problems(storage: Any) -> dict[str, str]:
    return {each.name: each.problem for each in StorageCheck(storage).run() if each.problem}


def past_the_end(storage: Any) -> None:
    read = storage.fetch_segment

    def fetch(segment: RemoteSegment, position: int, size_bytes: int) -> bytes:
        found = bytes(read(segment, position, size_bytes))
        if not found:
            raise RemoteStorageError("416")
        return found

    storage.fetch_segment = fetch


def one_kind_of_error(storage: Any) -> None:
    read = storage.fetch_index

    def fetch(segment: RemoteSegment, kind: IndexKind) -> bytes:
        try:
            return bytes(read(segment, kind))
        except ObjectMissing:
            raise RemoteStorageError("no answer") from None

    storage.fetch_index = fetch


def keeps_the_first(storage: Any) -> None:
    copy, seen = storage.copy_segment, set[Uuid]()

    def once(segment: RemoteSegment, data: SegmentData) -> bytes | None:
        if segment.segment_id in seen:
            return b"here"
        seen.add(segment.segment_id)
        found: bytes | None = copy(segment, data)
        return found

    storage.copy_segment = once


def takes_anything(storage: Any) -> None:
    copy = storage.copy_segment

    def tolerant(segment: RemoteSegment, data: SegmentData) -> bytes | None:
        try:
            copy(segment, data)
        except (OSError, RemoteStorageError):
            return None
        return None

    storage.copy_segment = tolerant


def by_offset(storage: Any) -> None:
    inner = dict[str, Any]()
    for name in ("copy_segment", "fetch_segment", "fetch_index", "delete_segment"):
        inner[name] = getattr(storage, name)

        def call(segment: RemoteSegment, *more: Any, name: str = name) -> Any:
            same = segment._replace(segment_id=segment.base_offset.to_bytes(16, "big"))
            return inner[name](same, *more)

        setattr(storage, name, call)


def says_too_much(storage: Any) -> None:
    copy = storage.copy_segment

    def verbose(segment: RemoteSegment, data: SegmentData) -> bytes:
        copy(segment, data)
        return bytes(129)

    storage.copy_segment = verbose


def never_deletes(storage: Any) -> None:
    storage.delete_segment = lambda segment: None


def must_exist(storage: Any) -> None:
    delete = storage.delete_segment

    def strict(segment: RemoteSegment) -> None:
        storage.fetch_segment(segment, 0, 1)
        delete(segment)

    storage.delete_segment = strict


def small_only(storage: Any) -> None:
    copy = storage.copy_segment

    def refusing(segment: RemoteSegment, data: SegmentData) -> bytes | None:
        if data.log.size_bytes > 1_000_000:
            raise RemoteStorageError("413")
        found: bytes | None = copy(segment, data)
        return found

    storage.copy_segment = refusing


@pytest.mark.parametrize(
    ("breaks", "name", "says"),
    [
        (past_the_end, "ranges end where the log ends", "416"),
        (
            one_kind_of_error,
            "each index comes back",
            "RemoteStorageError: no answer; expected: Obj",
        ),
        (one_kind_of_error, "a segment that does not exist", "expected: ObjectMissing"),
        (keeps_the_first, "a repeated copy of the same segment", "the log's bytes"),
        (takes_anything, "a copy that fails says so", "3 bytes that were announced as 10"),
        (by_offset, "two segments with the same offsets", "of the other"),
        (says_too_much, "custom metadata", "129 bytes; a broker takes 128"),
        (never_deletes, "a deleted segment", "though it does not exist"),
        (must_exist, "a delete of what does not exist", "no such part"),
        (small_only, "a segment of 20 MiB", "413"),
    ],
)
def test_a_class_that_would_lose_something_is_found_out(
    tmp_path: Path, breaks: Any, name: str, says: str
) -> None:
    storage = store(tmp_path)
    assert problems(storage) == {}
    breaks(storage)
    assert says in problems(storage)[name]


def test_a_class_that_does_not_answer_is_not_asked_for_all_the_rest(tmp_path: Path) -> None:
    storage = store(tmp_path)

    def down(segment: RemoteSegment, data: SegmentData) -> bytes | None:
        raise RemoteStorageError("no answer")

    storage.copy_segment = down
    first, clean = StorageCheck(storage).run()
    assert "no answer" in (first.problem or "")
    assert clean.problem is None


# ------------------------------------------------------------------------------------- the wrong secret


@pytest.mark.parametrize(
    ("uri", "variable", "setting"),
    [
        ("s3://b/p", "AWS_SECRET_ACCESS_KEY", "secret_access_key"),
        ("az://c/p", "AZURE_STORAGE_ACCOUNT_KEY", "account_key"),
    ],
)
def test_a_secret_of_the_environment_is_made_wrong_too(
    monkeypatch: pytest.MonkeyPatch, uri: str, variable: str, setting: str
) -> None:
    right = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LWtleQ=="
    for name in ("AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    other = {"region": "x", "access_key_id": "i"} if uri.startswith("s3") else {"account_name": "n"}
    assert module._wrong(uri, other) is None
    monkeypatch.setenv(variable, right)
    wrong = module._wrong(uri, other)
    assert wrong is not None
    opened: Any = wrong()
    used = {key: value for key, value in opened._store.config.items() if key.endswith(setting)}
    assert list(used.values()) != [right]
    assert len(used) == 1
    assert used.popitem()[1].endswith(right[-4:])
    # A setting stands above the variable.
    assert module._wrong(uri, {**other, setting: right}) is not None


def test_a_directory_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert module._wrong(str(tmp_path), {}) is None
    assert open_store(str(tmp_path)) is not None
