"""The runner of transcripts notices every difference."""

import os
from pathlib import Path

import pytest

from tests.transcripts import Step, blocks, matches, run_transcript, steps

PAGE = """# A page

```console
$ echo one; echo two >&2  # a remark
one
two      # another
$ cat <<END
> three
> END
three
```

```python
$ echo no transcript
```
"""


def test_a_page_has_transcripts() -> None:
    (block,) = blocks(PAGE)
    assert steps(block) == [
        Step("echo one; echo two >&2  # a remark", ("one", "two")),
        Step("cat <<END\nthree\nEND", ("three",)),
    ]


@pytest.mark.parametrize(
    ("printed", "expected", "are_same"),
    [
        ([], [], True),
        (["a"], [], False),
        ([], ["a"], False),
        (["a", "b"], ["a", "b"], True),
        (["a", "x", "b"], ["a", "b"], False),
        (["a", "x", "y", "b"], ["a", "...", "b"], True),
        (["a", "b"], ["a", "...", "b"], True),
        (["pid 17, port 9"], ["pid ..., port 9"], True),
        (["pid 17, port 8"], ["pid ..., port 9"], False),
        (["a.c"], ["a.c"], True),
        (["abc"], ["a.c"], False),
    ],
)
def test_dots_stand_for_anything(printed: list[str], expected: list[str], are_same: bool) -> None:
    assert matches(printed, expected) is are_same


def run(block: str, directory: Path, within_s: float = 20) -> None:
    run_transcript(block, directory, os.environ, replaced={"9092": "7"}, within_s=within_s)


def test_commands_share_a_shell_and_texts_are_replaced(tmp_path: Path) -> None:
    run("$ cd /; NAME=x\n$ echo $NAME $PWD 9092\nx / 7\n", tmp_path)


def test_a_job_in_the_background_may_print_later(tmp_path: Path) -> None:
    run("$ (sleep 0.3; echo ready; sleep 60) &\nready\n$ echo on\non\n", tmp_path)


@pytest.mark.parametrize("printed", ["other", "", "some\nmore"])
def test_another_output_fails_and_is_shown(tmp_path: Path, printed: str) -> None:
    with pytest.raises(AssertionError, match="instead of"):
        run(f"$ echo some\n{printed}\n", tmp_path, within_s=2)


def test_a_command_that_hangs_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="has not ended"):
        run("$ sleep 60\n", tmp_path, within_s=0.3)


@pytest.mark.parametrize(
    ("command", "is_run_again"),
    [
        ("firnline cluster status", True),
        ("firnline topic describe t | cat", True),
        ("firnline doctor 2>/dev/null", True),
        ("firnline topic create t", False),
        ("firnline cluster status; firnline topic delete t", False),
        ("firnline cluster status &", False),
    ],
)
def test_what_only_looks_is_run_until_it_shows_what_is_expected(
    tmp_path: Path, command: str, is_run_again: bool
) -> None:
    program = tmp_path / "firnline"
    program.write_text(f"#!/bin/sh\necho run >>{tmp_path}/runs\ngrep -c run {tmp_path}/runs\n")
    program.chmod(0o755)
    shell = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    if not is_run_again:
        with pytest.raises(AssertionError, match="instead of"):
            run_transcript(f"$ {command}\nno\n", tmp_path, shell, within_s=1)
        return
    run_transcript(f"$ {command}\n2\n", tmp_path, shell, within_s=30)
    with pytest.raises(AssertionError, match="instead of"):
        run_transcript(f"$ {command}\nno\n", tmp_path, shell, within_s=0.5)


def test_numbers_ids_and_widths_may_differ_where_they_are_not_compared(tmp_path: Path) -> None:
    block = (
        "$ echo 'offset   17,  5Bo2gHVFS-Op6qzIOYLszw  ok'\noffset 9, abcdefghij_klmnopqr-st ok\n"
    )
    run_transcript(block, tmp_path, os.environ, are_numbers_compared=False)
    for wrong in (block.replace(" ok\n", " bad\n"), block.replace("offset 9", "offset nine")):
        with pytest.raises(AssertionError, match="has printed"):
            run_transcript(wrong, tmp_path, os.environ, are_numbers_compared=False, within_s=1)
    with pytest.raises(AssertionError, match="has printed"):
        run_transcript(block, tmp_path, os.environ, within_s=1)
