"""What a command says on stderr besides its result: notes, and on a terminal how far it is. WORLD."""

import sys
import time

_EVERY_S = 0.5
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Counts records. One line of a terminal shows how many, and is cleared before anything else is said.

    is_quiet   no notes
    is_shown   whether the line is shown; None: if stderr is a terminal
    """

    def __init__(self, *, is_quiet: bool, is_shown: bool | None = None) -> None:
        self.is_quiet = is_quiet
        self.has_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._is_shown = (self.has_terminal if is_shown is None else is_shown) and not is_quiet
        self._began_s = self._next_s = time.monotonic()
        self._is_dirty = False

    def show(self, count: int, total: int | None = None) -> None:
        """Say how many records there were, at most twice a second."""
        now_s = time.monotonic()
        if not self._is_shown or now_s < self._next_s + _EVERY_S:
            return
        self._next_s = now_s
        rate = count / max(0.001, now_s - self._began_s)
        of = f" of {total:,}" if total else ""
        sys.stderr.write(f"{_CLEAR_LINE}{count:,}{of} records, {rate:,.0f} a second")
        sys.stderr.flush()
        self._is_dirty = True

    def clear(self) -> None:
        """Remove the line."""
        if self._is_dirty:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
            self._is_dirty = False

    def note(self, text: str) -> None:
        """Say something that is worth knowing, unless it is to be quiet."""
        if not self.is_quiet:
            self.say(text)

    def say(self, text: str) -> None:
        """Say something that has to be known."""
        self.clear()
        if sys.stderr is not None:  # None: a shell closed it; print would take stdout then
            print(f"firnline: {text}", file=sys.stderr, flush=True)


def records_text(count: int) -> str:
    """Return a number of records for people: 1 record, 12,345 records."""
    return f"{count:,} record" + ("" if count == 1 else "s")
