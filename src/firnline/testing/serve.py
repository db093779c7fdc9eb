"""`firnline` as the child of a test process: it stops when its parent is gone. WORLD.

    python -m firnline.testing.serve [--remove DIR] dev --port 0 ...

Standard input is a pipe whose other end the parent holds. The kernel closes it however the parent ends, also
by kill -9. Then this process stops in order, and removes DIR, which nobody else would do any more. (Linux can
send a signal to the children of a dead parent, but sends it when the thread ends that started the child, and
tests start brokers in threads.)
"""

import os
import runpy
import shutil
import signal
import sys
import threading

_REMOVE = "--remove"


def main() -> None:
    """Run the command line that follows, until it ends or the parent is gone."""
    directory = None
    if sys.argv[1:2] == [_REMOVE]:
        directory = sys.argv[2]
        del sys.argv[1:3]
    parent_is_gone = threading.Event()
    # Until the command installs its own handler, leave through `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_await_end, args=[parent_is_gone], daemon=True, name="parent").start()
    try:
        runpy.run_module("firnline", run_name="__main__", alter_sys=True)
    finally:
        if directory is not None and parent_is_gone.is_set():
            shutil.rmtree(directory, ignore_errors=True)


def _await_end(parent_is_gone: threading.Event) -> None:
    """Stop this process when standard input ends."""
    # Not sys.stdin: a thread that holds its lock would disturb the end of the interpreter.
    while os.read(0, 512):
        pass
    parent_is_gone.set()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


if __name__ == "__main__":
    main()
