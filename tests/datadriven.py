"""Scripts with their expected output beside each command; FIRNLINE_REWRITE=1 records what happens now.

    # a comment
    command and its arguments
    ----
    what it prints

Blocks are parted by blank lines. A command that prints nothing shows `(nothing)`.
"""

import os
from collections.abc import Callable
from pathlib import Path


def run_script(path: Path, command: Callable[[str], str]) -> None:
    """Run each block's command; compare what all of them print with the file."""
    written, ran = [], []
    for block in path.read_text().strip().split("\n\n"):
        asked = block.partition("\n----\n")[0]
        lines = [line for line in asked.splitlines() if not line.startswith("#")]
        printed = "\n".join(filter(None, map(command, lines))) if lines else None
        written.append(block.strip())
        ran.append(asked if printed is None else f"{asked}\n----\n{printed or '(nothing)'}")
    if os.environ.get("FIRNLINE_REWRITE") == "1":
        path.write_text("\n\n".join(ran) + "\n")
    else:
        assert "\n\n".join(ran) == "\n\n".join(written)
