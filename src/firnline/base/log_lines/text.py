"""The text of a line: `message key=value`, on one line whatever the values hold. PURE."""

from collections.abc import Callable, Mapping

# A longer value or message is cut: clients choose some of them.
VALUE_CHARS_MAX = 1_000
MESSAGE_CHARS_MAX = 8_000
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/@+-,[]()*#%")


def escaped(text: str) -> str:
    """Return `text` with escapes for all characters that cannot be printed: it is one line then."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    code = ord(char)
    return short or (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def value_text(value: object, redact: Callable[[str], str] = str) -> str:
    """Return a value of a field as text, in quotes if it is not a plain word."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        text = ",".join(str(each) for each in value)
    else:
        text = str(value)
    text = cut(redact(text), VALUE_CHARS_MAX)
    if text and _PLAIN.issuperset(text):
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped(quoted)}"'


def fields_text(fields: Mapping[str, object], redact: Callable[[str], str] = str) -> str:
    """Return ` key=value` for each field."""
    return "".join(f" {name}={value_text(value, redact)}" for name, value in fields.items())


def cut(text: str, chars_max: int) -> str:
    """Return the beginning of a long text, and how long it is."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}... ({len(text)} characters)"
