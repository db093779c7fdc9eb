"""Looks for inputs that reach code which none has reached, decoder by decoder. WORLD.

    pip install atheris
    python -m tests.fuzz.cover [--seconds 60] [--keep] [batches groups ...]

Each decoder has a process of its own: libFuzzer, through atheris, alters what is in tests/fuzz/corpus and
what the decoder's own seeds are, and sees which lines of ours and which comparisons that reaches. A finding
is an error that no caller expects, an input that takes seconds, or a gigabyte of memory. With --keep short
inputs that reached something go into the corpus, which `make test` plays.
"""

import argparse
import base64
import subprocess
import sys
import tempfile
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
INPUT_BYTES_MAX, KEPT_BYTES_MAX, KEPT_MAX = 4096, 300, 40
_RSS_MB_MAX = 1500
_SLOW_S = 10
_CHILD = "--one"


def read_corpus(name: str) -> list[bytes]:
    """The inputs of a decoder that are kept."""
    path = CORPUS / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [base64.b64decode(line) for line in lines]


def write_corpus(name: str, inputs: list[bytes]) -> None:
    """Keep inputs, one a line in base 64, some of each size."""
    short = sorted(
        {one for one in inputs if len(one) <= KEPT_BYTES_MAX}, key=lambda one: (len(one), one)
    )
    kept = short[:: max(1, -(-len(short) // KEPT_MAX))]
    CORPUS.mkdir(exist_ok=True)
    lines = "".join(base64.b64encode(one).decode() + "\n" for one in kept)
    (CORPUS / f"{name}.txt").write_text(lines)


def _one(name: str, arguments: list[str]) -> None:
    """Fuzz one decoder in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["firnline"]):
        from tests.fuzz.decoders import DECODERS, check
    decoder = DECODERS[name]
    atheris.Setup([sys.argv[0], *arguments], lambda data: check(decoder, data) and None)
    atheris.Fuzz()


def _run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.cover", _CHILD, name, "--", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def fuzz(name: str, seconds: int, *, keeps: bool) -> str:
    """Fuzz one decoder for so long; return what was found, "" for nothing."""
    from tests.fuzz.decoders import DECODERS

    with tempfile.TemporaryDirectory(prefix="firnline-cover-") as base:
        found = Path(base) / "found"
        found.mkdir()
        for number, data in enumerate([*DECODERS[name].seeds(), *read_corpus(name)]):
            (found / f"seed-{number}").write_bytes(data)
        done = _run(
            name,
            f"-max_total_time={seconds}",
            f"-max_len={INPUT_BYTES_MAX}",
            f"-rss_limit_mb={_RSS_MB_MAX}",
            f"-timeout={_SLOW_S}",
            f"-artifact_prefix={base}/",
            str(found),
        )
        last = [line for line in done.stderr.splitlines() if "cov:" in line or "Done" in line][-2:]
        print(f"{name}: {' '.join(last)[:300]}", flush=True)
        if done.returncode:
            return f"{name}: {done.stdout[-1500:]}{done.stderr[-3000:]}"
        if keeps:
            new = [path for path in found.iterdir() if not path.name.startswith("seed-")]
            write_corpus(name, [*read_corpus(name), *(path.read_bytes() for path in new)])
    return ""


def main() -> int:
    """Fuzz as the command says; 1 where something was found."""
    if _CHILD in sys.argv[1:2]:
        _one(sys.argv[2], sys.argv[4:])
        return 0
    from tests.fuzz.decoders import DECODERS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.cover")
    parser.add_argument("decoders", nargs="*", default=[], help="by name; without one all of them")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    found = [fuzz(n, given.seconds, keeps=given.keep) for n in given.decoders or DECODERS]
    print("\n".join(filter(None, found)))
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
