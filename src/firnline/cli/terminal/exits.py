"""Exit codes, and how a command ends that fails, is interrupted, or has nobody to write to. WORLD.

Nothing that goes wrong shows a traceback, unless FIRNLINE_DEBUG=1 asks for it.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from types import MappingProxyType

import click

from firnline.base.errors import FirnlineError
from firnline.cli.terminal.names import explained_usage
from firnline.cli.terminal.table import wrapped

OK, FAILED, WRONG_USAGE, SOMETHING_IS_WRONG, INTERRUPTED, NOBODY_READS = 0, 1, 2, 3, 130, 141
# The table of docs/reference/cli.md.
EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        OK: "The command did what was asked, and found nothing wrong.",
        FAILED: "An error: the command could not do it. One line on stderr says what, where and what to do.",
        WRONG_USAGE: "Wrong usage: an unknown command or option, or a value that cannot be.",
        SOMETHING_IS_WRONG: "The command did what was asked, and found that something is wrong.",
        INTERRUPTED: "Interrupted with Ctrl-C. `dev` and `server` that run stop with 0: it is how they end.",
        NOBODY_READS: "Whoever read the output has gone, as `head` does. What the command does is done.",
    }
)
DEBUG = "FIRNLINE_DEBUG"
_AGAIN_S = 0.01
_OF_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run(command: click.Command) -> None:
    """Run `command` with the arguments of the process, and exit with one of EXIT_CODES."""
    code = INTERRUPTED
    _hold_standard_descriptors()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _interrupt_again
        code = _flushed(_outcome(command))
    except KeyboardInterrupt:
        pass
    finally:
        # Python ends its threads after this: nobody would catch an interrupt.
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    sys.exit(code)


def _hold_standard_descriptors() -> None:
    """Open /dev/null where stdin, stdout or stderr is closed, as some supervisors start a server.

    Otherwise the next socket or segment would get the number 0, 1 or 2: a library that complains on stderr
    would write into a client's connection or into the log, and a child process would inherit it. For Python
    they stay closed, and commands say so.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)


def _interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Interrupt once more if Ctrl-C came where Python ignores exceptions, as in a callback of an import.

    A little later: here it would be ignored, too.
    """
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        main = threading.main_thread().ident
        assert main is not None
        again = threading.Timer(_AGAIN_S, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)


def _outcome(command: click.Command) -> int:
    """Return the exit code of `command`; show what it raises."""
    stdout = sys.stdout
    try:
        try:
            code = command.main(prog_name="firnline", standalone_mode=False)
        finally:
            _write_log()
    except SystemExit as end:
        if sys.stdout is not stdout:  # click puts another there when nobody reads
            return NOBODY_READS
        code = end.code if isinstance(end.code, int | None) else FAILED
    except click.Abort as end:
        return INTERRUPTED if isinstance(end.__cause__, KeyboardInterrupt) else FAILED
    except click.ClickException as problem:
        explained_usage(problem).show()
        return problem.exit_code
    except Exception as problem:  # noqa: BLE001 - whatever it is, nobody sees a traceback
        return show_failure(problem)
    return code if isinstance(code, int) else OK


def show_failure(problem: Exception) -> int:
    """Say in one line on stderr what went wrong; return the exit code."""
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(problem)
        return FAILED
    if isinstance(problem, FirnlineError):
        said = str(problem)
    elif isinstance(problem, UnicodeEncodeError) and problem.reason == "surrogates not allowed":
        said = f"{problem.object!r} is not text in UTF-8"  # Python's form of such an argument
    elif isinstance(problem, OSError):
        where = "cannot write" if problem.errno in _OF_WRITES else None
        where = problem.filename if problem.filename is not None else where
        what = str(problem.strerror or problem) or type(problem).__name__
        said = f"{where}: {problem.strerror}" if where else what
    else:
        what = " ".join(f"{type(problem).__name__}: {problem}".split()).rstrip(".")
        said = (
            f"this is a bug: {what}. Please report it with what {DEBUG}=1 prints for this command"
        )
    _print_line(f"firnline: {said}")
    return FAILED


def _write_log() -> None:
    """Wait until another thread has written what was logged: the line of an error is the last one.

    If the reader of stderr has stopped, nothing more is written there: it would wait for ever, and a node
    that has failed would never be started again.
    """
    logging = sys.modules.get("logging")  # most commands never import it
    for handler in logging.root.handlers if logging else ():
        # stderr is closed, or its disk is full; or Ctrl-C ends the wait, and not what the command says.
        with contextlib.suppress(OSError, ValueError, KeyboardInterrupt):
            handler.flush()
        if getattr(handler, "is_stuck", False):
            sys.stderr = None


def _print_line(line: str) -> None:
    """Print to stderr, if anybody is there."""
    if sys.stderr is not None:  # None: closed or nobody reads; print would take stdout
        with contextlib.suppress(OSError, ValueError):
            print(wrapped(line, sys.stderr), file=sys.stderr, flush=True)


def _flushed(code: int) -> int:
    """Write what is still buffered for stdout. A disk that is full is an error, also this late."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as problem:
        _to_nobody()
        if problem.errno == errno.EPIPE:
            return code or NOBODY_READS  # who read our output has enough of it, as `head`
        return code or show_failure(problem)
    except ValueError:  # closed, so nothing is buffered
        pass
    return code


def _to_nobody() -> None:
    """Let Python, which flushes stdout once more when it exits, write to nobody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
