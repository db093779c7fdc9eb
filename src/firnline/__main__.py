"""The entry of the `firnline` command, also as `python -m firnline`. WORLD.

Imports nothing of ours before Ctrl-C is handled: the imports take a good part of a short command's time.
"""


def main() -> None:
    """Run the command line. Ctrl-C during the imports ends the process with exit code 130 and no output."""
    try:
        import os
        import signal

        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        from firnline.cli.main import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
