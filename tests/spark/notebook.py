"""Runs the code cells of a notebook, one after the other, and keeps what they print. WORLD.

    python -m tests.spark.notebook examples/past_and_tail.ipynb    write what they print into it

Jupyter is not needed for that. A cell shows with `print` or `show()` what is to be seen.
"""

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def run(path: Path) -> list[tuple[str, str, str]]:
    """Run all code cells; return of each its source, what the notebook shows, and what it printed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    try:
        for cell in _code_cells(json.loads(path.read_text())):
            source, printed = "".join(cell["source"]), io.StringIO()
            with redirect_stdout(printed):
                exec(compile(source, str(path), "exec"), names)  # noqa: S102 - an example of ours
            found.append((source, _kept(cell), printed.getvalue()))
    finally:
        for value in names.values():
            if isinstance(value, subprocess.Popen):  # of a cell that failed
                value.kill()
    return found


def _code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _kept(cell: dict[str, Any]) -> str:
    return "".join(text for output in cell["outputs"] for text in output["text"])


def write(path: Path) -> None:
    """Run the notebook and write what its cells print into it."""
    notebook = json.loads(path.read_text())
    cells = _code_cells(notebook)
    for number, (cell, (_, _, printed)) in enumerate(zip(cells, run(path), strict=True), 1):
        lines = printed.splitlines(keepends=True)
        output = {"name": "stdout", "output_type": "stream", "text": lines}
        cell["outputs"] = [output] if lines else []
        cell["execution_count"] = number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
