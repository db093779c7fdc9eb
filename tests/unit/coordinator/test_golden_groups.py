"""The stories of tests/golden/coordinator, told to a coordinator and compared with what they say."""

import re
from pathlib import Path

import pytest

from firnline.base.effects import Append
from firnline.base.errors import Code
from firnline.coordinator.membership import JoinResult, SyncResult
from firnline.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from tests.datadriven import run_script
from tests.worlds.decoded import all_records
from tests.worlds.groups import GROUP, GroupWorld, check_counts

SCRIPTS = sorted((Path(__file__).parents[2] / "golden" / "coordinator").glob("*.txt"))
_ID = re.compile(r"00000000-0000-0000-0000-0*([0-9a-f]+)")


class Watched(GroupWorld):
    """Writes down what is appended, as rows of text."""

    def __init__(self, written: list[str], **settings: int) -> None:
        self.written = written
        super().__init__(**settings)

    def on_append(self, effect: Append) -> None:
        self.written += _rows(effect)
        super().on_append(effect)


class Story:
    """Commands of a script. A client is called by its name; its ids are remembered."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.world = Watched(self.written)
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}

    def command(self, line: str) -> str:
        verb, *words = line.split()
        options = dict(w.split("=", 1) for w in words if "=" in w)
        names = [w for w in words if "=" not in w]
        printed = getattr(self, f"_{verb}")(names, options) or []
        check_counts(self.world.groups)
        lines = [*printed, *self.written, *self._reported()]
        self.written.clear()
        return "\n".join(_ID.sub(r"\1", text) for text in lines)

    def _reported(self) -> list[str]:
        lines = []
        for who, result in self.world.take_reported():
            if isinstance(result, JoinResult):
                lines.append(f"{who}: {self._joined(who, result)}")
            elif isinstance(result, SyncResult):
                got = result.assignment.decode() if result.code is Code.NONE else result.code.name
                lines.append(f"{who}: has {got or 'nothing'}")
            elif who == "delete":
                lines += [f"{group}: {code.name}" for group, code in result]
            else:
                lines.append(f"{who}: {' '.join(code.name for code in result)}")
        return lines

    def _joined(self, who: str, result: JoinResult) -> str:
        if result.member_id:
            self.ids[who] = result.member_id
        if result.code is Code.MEMBER_ID_REQUIRED:
            return f"come back as {result.member_id}"
        if result.code is not Code.NONE:
            return result.code.name
        self.generations[who] = result.generation_id
        text = f"{result.member_id} in generation {result.generation_id}, {result.protocol_name}"
        if result.leader != result.member_id:
            return f"{text}, led by {result.leader}"
        skips = ", skips the assignment" if result.skip_assignment else ""
        return f"{text}, leads {' '.join(m.member_id for m in result.members)}{skips}"

    # ------------------------------------------------------------------------------------ commands

    def _set(self, names: list[str], options: dict[str, str]) -> None:
        self.world = Watched(self.written, **{k: int(v) for k, v in options.items()})

    def _join(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            instance = options.get("instance")
            is_new = options.get("as") == "new"
            self.world.join(
                name,
                "" if is_new else self.ids.get(name, ""),
                instance=instance,
                protocols=options.get("protocols", "range").split(","),
                metadata=options.get("topics", "").encode(),
                session_ms=int(options.get("session", 30_000)),
                version=int(options.get("v", 9)),
            )

    def _sync(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            parts = {self.ids[n]: part.encode() for n, part in options.items() if n in self.ids}
            self.world.sync(
                name,
                self.ids[name],
                self.generations[name],
                instance=options.get("instance"),
                assignments=parts,
            )

    def _heartbeat(self, names: list[str], options: dict[str, str]) -> list[str]:
        instance = options.get("instance")
        return [
            f"{n}: {self.world.heartbeat(self.ids[n], self.generations[n], instance=instance).name}"
            for n in names
        ]

    def _leave(self, names: list[str], options: dict[str, str]) -> list[str]:
        codes = self.world.leave(*((self.ids[n], None) for n in names))
        return [f"{n}: {code.name}" for n, code in zip(names, codes, strict=True)]

    def _commit(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        offsets = [("t", int(p[2:]), int(o)) for p, o in options.items() if p.startswith("t-")]
        self.world.commit(
            name,
            *offsets,
            member_id=self.ids.get(name, ""),
            generation=self.generations.get(name, -1),
        )

    def _fetch(self, names: list[str], options: dict[str, str]) -> list[str]:
        found = self.world.fetched()
        return [" ".join(f"{t}-{p}={o}" for (t, p), o in found.items()) or "no offsets"]

    def _describe(self, names: list[str], options: dict[str, str]) -> list[str]:
        found = self.world.groups.describe(GROUP)
        members = [f"  {m.member_id} {m.assignment.decode()}".rstrip() for m in found.members]
        return [found.state, *members]

    def _delete(self, names: list[str], options: dict[str, str]) -> None:
        self.world.delete(GROUP)

    def _wait(self, names: list[str], options: dict[str, str]) -> None:
        self.world.pass_time(int(names[0]))

    def _hold(self, names: list[str], options: dict[str, str]) -> None:
        self.world.holds_appends = True

    def _release(self, names: list[str], options: dict[str, str]) -> None:
        self.world.holds_appends = False
        self.world.commit_appends()

    def _fail(self, names: list[str], options: dict[str, str]) -> None:
        self.world.holds_appends = False
        self.world.fail_appends(Code[names[0]])

    def _crash(self, names: list[str], options: dict[str, str]) -> None:
        self.world.crash()

    def _unload(self, names: list[str], options: dict[str, str]) -> None:
        self.world.unload()


def _rows(append: Append) -> list[str]:
    lines = []
    for record in all_records(append.batch):
        assert record.key is not None
        key = decode_key(record.key)
        value = None if key is None or record.value is None else decode_value(key, record.value)
        if isinstance(value, GroupMetadataValue):
            members = " ".join(m.member_id for m in value.members) or "nobody"
            lines.append(f"write generation {value.generation} of {members}")
        elif isinstance(value, OffsetCommitValue):
            assert key is not None
            assert not isinstance(key, GroupMetadataKey)
            lines.append(f"write {key.topic}-{key.partition}={value.offset}")
        elif isinstance(key, GroupMetadataKey):
            lines.append("write tombstone of the group")
        else:
            assert key is not None
            lines.append(f"write tombstone of {key.topic}-{key.partition}")
    return lines


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_story(path: Path) -> None:
    run_script(path, Story().command)
