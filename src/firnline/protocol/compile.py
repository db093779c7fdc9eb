"""Compile message declarations to straight-line readers and writers, per version, on first use. PURE.

A reader is `read(buffer, position, end, budget) -> (object, position)`: `end` bounds the message, and
`budget[0]` the number of array elements that may still be created. A writer is `write(object, emit)`; `emit`
takes byte strings and file slices in order. Runs of fixed-width fields become one `Struct.unpack_from` or
`pack`; lengths of one byte are inlined. The generated source is in `linecache`, so tracebacks and debuggers
show it.

Measured against hand-written code and kio: design page `performance`, section 4; `bench/codec.py`.
"""

import linecache
import struct
from collections.abc import Callable, Generator, Iterator
from typing import Any

from firnline.base.errors import ProtocolError
from firnline.base.limits import ARRAY_ELEMENTS_MAX
from firnline.base.slices import FileRecords
from firnline.protocol.declaration import Declaration, Field, Struct
from firnline.protocol.primitives import (
    NO_TAGS,
    check_count,
    check_length,
    read_string_length,
    read_tags,
    read_uvarint,
    string_length,
    uvarint,
)

Reader = Callable[[Any, int, int, list[int]], tuple[Any, int]]
Writer = Callable[[Any, Callable[[Any], None]], None]
SlicingReader = Callable[[Any, int, int, list[int]], Generator[Any, None, tuple[Any, int]]]
SlicingWriter = Callable[[Any, Callable[[Any], None]], Iterator[None]]

# kind -> (struct letter, bytes)
FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
# What a reader raises for malformed bytes.
BAD_BYTES = (struct.error, IndexError, UnicodeDecodeError)

_readers: dict[tuple[type[Declaration], int], Reader] = {}
_guarded: dict[tuple[type[Declaration], int], Reader] = {}
_writers: dict[tuple[type[Declaration], int], Writer] = {}
_slicing_readers: dict[tuple[type[Declaration], int], SlicingReader] = {}
_slicing: dict[tuple[type[Declaration], int], SlicingWriter] = {}
# Array elements that are read or written per slice: about a millisecond. A string or bytes field counts as
# one more for each 512 bytes, so that a slice is not much more than 256 KiB.
ELEMENTS_PER_SLICE = 500
_BYTES_OF_AN_ELEMENT_BITS = 9


def reader(cls: type[Declaration], version: int) -> Reader:
    """Return the reader of `cls` at `version`; it raises ProtocolError for malformed bytes.

    An empty `budget` means the default, ARRAY_ELEMENTS_MAX.
    """
    found = _guarded.get((cls, version))
    if found is not None:
        return found
    read = unguarded_reader(cls, version)

    def guarded(buffer: Any, position: int, end: int, budget: list[int]) -> tuple[Any, int]:
        try:
            message, after = read(buffer, position, end, budget or [ARRAY_ELEMENTS_MAX])
        except BAD_BYTES as problem:
            raise ProtocolError(f"not a {cls.__name__}", problem=problem) from None
        if after > end:
            raise ProtocolError(f"not a {cls.__name__}: it ends early", left=end - position)
        return message, after

    _guarded[cls, version] = guarded
    return guarded


def unguarded_reader(cls: type[Declaration], version: int) -> Reader:
    """Return a reader that may also raise BAD_BYTES; its caller checks that it ended before `end`.

    It unpacks fixed-width fields without checking `end`.
    """
    key = (cls, version)
    found = _readers.get(key)
    if found is None:
        assert version in cls.valid, f"{cls.__name__} has no version {version}"
        found = _readers[key] = _compile_reader(cls, version, version in cls.flexible)
    return found


def slicing_reader(cls: type[Declaration], version: int) -> SlicingReader:
    """Return an unguarded reader that is a generator and yields after each ELEMENTS_PER_SLICE array elements.

    It yields the message with everything that was read so far, so that whoever abandons it can free it.
    """
    key = (cls, version)
    found = _slicing_readers.get(key)
    if found is None:
        assert version in cls.valid, f"{cls.__name__} has no version {version}"
        made: Any = _compile_reader(cls, version, version in cls.flexible, in_slices=True)
        found = _slicing_readers[key] = made
    return found


def writer(cls: type[Declaration], version: int) -> Writer:
    """Return the writer of `cls` at `version`."""
    key = (cls, version)
    found = _writers.get(key)
    if found is None:
        assert version in cls.valid, f"{cls.__name__} has no version {version}"
        found = _writers[key] = _compile_writer(cls, version, version in cls.flexible)
    return found


def slicing_writer(cls: type[Declaration], version: int) -> SlicingWriter:
    """Return a writer that is a generator and yields after each ELEMENTS_PER_SLICE structs in arrays."""
    key = (cls, version)
    found = _slicing.get(key)
    if found is None:
        assert version in cls.valid, f"{cls.__name__} has no version {version}"
        made: Any = _compile_writer(cls, version, version in cls.flexible, in_slices=True)
        found = _slicing[key] = made
    return found


class _Source:
    """The lines of a generated function and the values they refer to.

    in_slices  it is a generator that yields between slices
    """

    def __init__(self, title: str, *, in_slices: bool = False) -> None:
        self.title = title
        self.in_slices = in_slices
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[str, Any] = {}
        self._serial = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def bind(self, stem: str, value: Any) -> str:
        self._serial += 1
        name = f"{stem}{self._serial}"
        self.names[name] = value
        return name

    def local(self, stem: str) -> str:
        self._serial += 1
        return f"{stem}{self._serial}"

    def function(self, signature: str) -> Any:
        text = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        filename = f"<firnline {self.title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        exec(compile(text, filename, "exec"), self.names)  # noqa: S102 - our own declarations
        return self.names[signature.partition("(")[0]]


def _title(cls: type[Struct]) -> str:
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"


def _is_flexible(field: Field, version: int, flexible: bool) -> bool:
    return flexible if field.flexible is None else version in field.flexible


def _present(cls: type[Struct], version: int) -> list[tuple[str, Field]]:
    return [(n, x) for n, x in cls.fields.items() if version in x.versions and x.tag is None]


def _tagged(cls: type[Struct], version: int) -> list[tuple[str, Field]]:
    tagged = [(n, x) for n, x in cls.fields.items() if version in x.versions and x.tag is not None]
    return sorted(tagged, key=lambda item: item[1].tag or 0)


def bytes_min(kind: Any, version: int, flexible: bool) -> int:
    """Return the smallest size of a value of `kind`; it bounds array counts before memory is allocated."""
    if isinstance(kind, str):
        if kind in FIXED:
            return FIXED[kind][1]
        return 1 if flexible else 2 if kind == "string" else 4
    if isinstance(kind, list):
        return 1 if flexible else 4
    total = 1 if flexible else 0
    for _, field in _present(kind, version):
        nullable_struct = version in field.nullable and isinstance(field.kind, type)
        total += 1 if nullable_struct else bytes_min(field.kind, version, flexible)
    return max(total, 1)


# --------------------------------------------------------------------------------------- readers


def _compile_reader(
    cls: type[Declaration], version: int, flexible: bool, *, in_slices: bool = False
) -> Reader:
    how = " in slices" if in_slices else ""
    src = _Source(f"read {_title(cls)} v{version}{how}", in_slices=in_slices)
    src.names |= _READER_NAMES
    if in_slices:
        src.add(f"left = {ELEMENTS_PER_SLICE}")
        src.add("if left < 0: yield")  # a generator, also where there are no arrays
    _read_struct(src, "o", cls, version, flexible)
    src.add("return o, p")
    read: Reader = src.function("read(b, p, e, k)")
    return read


_READER_NAMES: dict[str, Any] = {
    "new": object.__new__,
    "uvarint": read_uvarint,
    "string_length": read_string_length,
    "after": check_length,
    "count_of": check_count,
    "read_tags": read_tags,
    "unpack": struct.unpack_from,
}


def _read_struct(
    src: _Source, o: str, cls: type[Struct], version: int, flexible: bool, place: str = ""
) -> None:
    """Emit the reading of a struct into the local `o`, inline, because a call costs as much as a field.

    place  a statement that stores it in its parent before any field is read
    """
    src.add(f"{o} = new({src.bind('cls', cls)})")
    if place:
        src.add(place)
    run: list[tuple[str, str]] = []
    for name, field in _present(cls, version):
        if isinstance(field.kind, str) and field.kind in FIXED:
            run.append((f"{o}.{name}", field.kind))
            continue
        _read_run(src, run)
        compact = _is_flexible(field, version, flexible)
        _read_value(src, f"{o}.{name}", field.kind, version in field.nullable, version, compact)
    _read_run(src, run)
    if flexible:
        known = {x.tag: (n, _tag_reader(cls, n, version)) for n, x in _tagged(cls, version)}
        tags = src.bind("tags", known or NO_TAGS)
        src.add(f"if b[p]: p = read_tags(b, p, e, k, {tags}, {o})")
        src.add("else: p += 1")


def _tag_reader(cls: type[Struct], name: str, version: int) -> Reader:
    """Return a reader of one tagged value; tagged sections exist only in flexible versions."""
    field = cls.fields[name]
    src = _Source(f"read {_title(cls)}.{name} v{version}")
    src.names |= _READER_NAMES
    _read_value(src, "v", field.kind, version in field.nullable, version, True)
    src.add("return v, p")
    made: Reader = src.function("read(b, p, e, k)")
    return made


def _read_run(src: _Source, run: list[tuple[str, str]]) -> None:
    """Emit one unpack for consecutive fixed-width fields."""
    if not run:
        return
    packed = struct.Struct(">" + "".join(FIXED[kind][0] for _, kind in run))
    unpack = src.bind("unpack", packed.unpack_from)
    targets = ", ".join(target for target, _ in run)
    src.add(f"{targets}{',' if len(run) == 1 else ''} = {unpack}(b, p)")
    src.add(f"p += {packed.size}")
    run.clear()


def _read_length(src: _Source, letter: str, flexible: bool, longer: str = "uvarint") -> str:
    """Emit the reading of a length: one or two bytes inline, else by `longer`. Return the local.

    Null is -1; Kafka 4.3.1 takes every negative length for null.
    """
    n = src.local("n")
    if flexible:
        src.add(f"{n} = b[p]")
        src.add("p += 1")
        src.add(f"if {n} > 127:")
        src.add(f"    if b[p] < 128: {n} += (b[p] << 7) - 128; p += 1")
        src.add(f"    else: {n}, p = {longer}(b, p - 1)")
        src.add(f"{n} -= 1")
    else:
        size = struct.calcsize(letter)
        src.add(f"{n}, = {src.bind('unpack', struct.Struct('>' + letter).unpack_from)}(b, p)")
        src.add(f"p += {size}")
    return n


def _read_value(
    src: _Source, target: str, kind: Any, nullable: bool, version: int, flexible: bool
) -> None:
    if isinstance(kind, str):
        if kind in FIXED:
            _read_run(src, [(target, kind)])
        else:
            _read_bytes(src, target, kind, nullable, flexible)
    elif isinstance(kind, list):
        _read_array(src, target, kind[0], nullable, version, flexible)
    else:
        if nullable:
            src.add("p += 1")
            src.add(f"if b[p - 1] > 127: {target} = None")
            src.add("else:")
            src.indent += 1
        inner = src.local("o")
        _read_struct(src, inner, kind, version, flexible, f"{target} = {inner}")
        if nullable:
            src.indent -= 1


def _read_bytes(src: _Source, target: str, kind: str, nullable: bool, flexible: bool) -> None:
    is_string = kind == "string"
    longer = "string_length" if is_string else "uvarint"
    n = _read_length(src, "h" if is_string else "i", flexible, longer)
    if nullable or kind == "records":
        src.add(f"if {n} < 0: {target} = None")
        src.add("else:")
        src.indent += 1
    src.add(f"q = p + {n}")
    src.add(f"if q > e or {n} < 0: after({n}, p, e)")
    src.add(f"{target} = str(b[p:q], 'utf-8')" if kind == "string" else f"{target} = b[p:q]")
    src.add("p = q")
    if nullable or kind == "records":
        src.indent -= 1


# Arrays of up to so many numbers use an unpacker that was created before.
_FEW = 9


def _unpackers(letter: str) -> tuple[Callable[..., Any], ...]:
    return tuple(struct.Struct(">" + letter * count).unpack_from for count in range(_FEW))


def _read_array(
    src: _Source, target: str, element: Any, nullable: bool, version: int, flexible: bool
) -> None:
    n = _read_length(src, "i", flexible)
    if nullable:
        src.add(f"if {n} < 0: {target} = None")
        src.add("else:")
        src.indent += 1
    least = bytes_min(element, version, flexible)
    # A single element costs no more than its container; if it is missing, reading it fails.
    src.add(f"if {n} > 1 or {n} < 0: count_of({n}, {least}, e - p, k)")
    if isinstance(element, str) and element in FIXED:
        letter, size = FIXED[element]
        few = src.bind("few", _unpackers(letter))
        src.add(f"if {n} < {_FEW}: {target} = {few}[{n}](b, p)")
        src.add(f"else: {target} = unpack('>' + '{letter}' * {n}, b, p)")
        src.add(f"p += {size} * {n}")
    else:
        items, item = src.local("items"), src.local("item")
        src.add(f"{items} = {target} = []" if src.in_slices else f"{items} = []")
        src.add(f"for _ in range({n}):")
        src.indent += 1
        if src.in_slices:
            src.add("left -= 1")
            src.add(f"if left <= 0: yield o; left = {ELEMENTS_PER_SLICE}")
        if src.in_slices and isinstance(element, type):
            _read_struct(src, item, element, version, flexible, f"{items}.append({item})")
        else:
            _read_value(src, item, element, False, version, flexible)
            src.add(f"{items}.append({item})")
        src.indent -= 1
        if not src.in_slices:
            src.add(f"{target} = {items}")
    if nullable:
        src.indent -= 1


# --------------------------------------------------------------------------------------- writers


def _compile_writer(
    cls: type[Declaration], version: int, flexible: bool, *, in_slices: bool = False
) -> Writer:
    how = " in slices" if in_slices else ""
    src = _Source(f"write {_title(cls)} v{version}{how}", in_slices=in_slices)
    src.names |= _WRITER_NAMES
    if in_slices:
        src.add(f"left = {ELEMENTS_PER_SLICE}")
        src.add("if left < 0: yield")  # a generator, also where there are no arrays
    _write_struct(src, "o", cls, version, flexible)
    if not src.lines:
        src.add("pass")
    write: Writer = src.function("write(o, emit)")
    return write


def _write_struct(src: _Source, o: str, cls: type[Struct], version: int, flexible: bool) -> None:
    """Emit the writing of the struct in the local `o`, inline."""
    run: list[tuple[str, str]] = []
    for name, field in _present(cls, version):
        if isinstance(field.kind, str) and field.kind in FIXED:
            run.append((f"{o}.{name}", field.kind))
            continue
        _write_run(src, run)
        compact = _is_flexible(field, version, flexible)
        _write_value(src, f"{o}.{name}", field.kind, version in field.nullable, version, compact)
    _write_run(src, run)
    if flexible:
        _write_tags(src, o, cls, version)


def _write_run(src: _Source, run: list[tuple[str, str]]) -> None:
    if not run:
        return
    packed = struct.Struct(">" + "".join(FIXED[kind][0] for _, kind in run))
    src.add(f"emit({src.bind('pack', packed.pack)}({', '.join(value for value, _ in run)}))")
    run.clear()


def _write_length(src: _Source, length: str, letter: str, flexible: bool) -> None:
    """Emit a length that is not null; the letter h means a string."""
    if flexible:
        longer = f"string_length({length})" if letter == "h" else f"uvarint({length} + 1)"
        src.add(f"emit(ONE[{length}] if {length} < 127 else {longer})")
    else:
        src.add(f"emit({src.bind('pack', struct.Struct('>' + letter).pack)}({length}))")


# Compact lengths 0..126, which take one byte: the length plus one.
_ONE_BYTE = [bytes([n + 1]) for n in range(127)]
_WRITER_NAMES: dict[str, Any] = {
    "uvarint": uvarint,
    "string_length": string_length,
    "FileRecords": FileRecords,
    "pack": struct.pack,
    "ONE": _ONE_BYTE,
}


def _write_null(src: _Source, letter: str, flexible: bool) -> None:
    null = b"\x00" if flexible else struct.pack(">" + letter, -1)
    src.add(f"emit({null!r})")


def _write_value(
    src: _Source, value: str, kind: Any, nullable: bool, version: int, flexible: bool
) -> None:
    if isinstance(kind, str) and kind in FIXED:
        _write_run(src, [(value, kind)])
        return
    v = src.local("v")
    src.add(f"{v} = {value}")
    letter = "h" if kind == "string" else "i"
    is_struct = isinstance(kind, type)
    if nullable or kind == "records":
        src.add(f"if {v} is None:")
        src.indent += 1
        if is_struct:
            src.add(r"emit(b'\xff')")
        else:
            _write_null(src, letter, flexible)
        src.indent -= 1
        src.add("else:")
        src.indent += 1
    if is_struct:
        if nullable:
            src.add(r"emit(b'\x01')")
        _write_struct(src, v, kind, version, flexible)
    elif isinstance(kind, list):
        _write_array(src, v, kind[0], version, flexible)
    else:
        if kind == "string":
            src.add(f"{v} = {v}.encode()")
        n = src.local("n")
        src.add(f"{n} = len({v})")
        _write_length(src, n, letter, flexible)
        if src.in_slices:
            src.add(f"left -= {n} >> {_BYTES_OF_AN_ELEMENT_BITS}")
        if kind == "records":
            src.add(f"if type({v}) is FileRecords:")
            src.add(f"    for s in {v}.slices: emit(s)")
            src.add(f"else: emit({v})")
        else:
            src.add(f"emit({v})")
    if nullable or kind == "records":
        src.indent -= 1


def _write_array(src: _Source, v: str, element: Any, version: int, flexible: bool) -> None:
    n = src.local("n")
    src.add(f"{n} = len({v})")
    _write_length(src, n, "i", flexible)
    if isinstance(element, str) and element in FIXED:
        src.add(f"if {n}: emit(pack('>' + '{FIXED[element][0]}' * {n}, *{v}))")
        return
    item = src.local("item")
    src.add(f"for {item} in {v}:")
    src.indent += 1
    if src.in_slices:
        src.add(f"if left <= 0: left = {ELEMENTS_PER_SLICE}; yield")
        src.add("left -= 1")
    if isinstance(element, type):
        before = len(src.lines)
        _write_struct(src, item, element, version, flexible)
        if len(src.lines) == before:
            src.add("pass")
    else:
        _write_value(src, item, element, False, version, flexible)
    src.indent -= 1


def _write_tags(src: _Source, o: str, cls: type[Struct], version: int) -> None:
    """Emit tagged fields, which are written only if they differ from the default (KIP-482)."""
    tagged = _tagged(cls, version)
    if not tagged:
        src.add(r"emit(b'\x00')")
        return
    slow: list[str] = []
    untouched: list[str] = []
    for name, field in tagged:
        default = src.bind("default", getattr(cls, name))
        untouched.append(f"{o}.{name} is {default}")
        inner = _Source(f"write {_title(cls)}.{name} v{version}")
        inner.names |= _WRITER_NAMES
        _write_value(inner, "o", field.kind, version in field.nullable, version, True)
        write = src.bind("write", inner.function("write(o, emit)"))
        slow.append(f"if {_differs(cls, f'{o}.{name}', name, default)}:")
        slow.append(f"    body = []; {write}({o}.{name}, body.append)")
        slow.append(f"    tags.append(({field.tag}, b''.join(body)))")
    # An attribute that was never set is the class's default itself: the common case, and cheap to check.
    src.add(f"if {' and '.join(untouched)}: emit(b'\\x00')")
    src.add("else:")
    src.indent += 1
    src.add("tags = []")
    for line in slow:
        src.add(line)
    src.add("emit(uvarint(len(tags)))")
    src.add("for t, body in tags: emit(uvarint(t) + uvarint(len(body)) + body)")
    src.indent -= 1


def _differs(cls: type[Struct], value: str, name: str, default: str) -> str:
    """Return the condition for writing a tagged field; the value may be an array of any type."""
    if not isinstance(cls.fields[name].kind, list):
        return f"{value} != {default}"
    if getattr(cls, name) is None:
        return f"{value} is not None"
    return f"{value} is None or len({value}) > 0"
