"""The signals that end a node in good order. WORLD."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return them: also SIGHUP, which a terminal that closes sends, as a JVM does.

    Not where SIGHUP is ignored: `nohup` lets a node outlive its terminal.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if is_ignored else (signal.SIGHUP,)))
