"""What can happen to the bytes of a tier, by seed: flips, cuts, zeros, swaps, another segment's object."""

from collections.abc import Mapping
from random import Random

from firnline.records.batch import CRC_START, headers
from firnline.tiered.objects.layout import LOG

FLIP, FLIPS, CUT, EMPTY, LONGER, ZEROS, SWAP, OTHER, TWIN = range(9)
KINDS = ("flip", "flips", "cut", "empty", "longer", "zeros", "swap", "other", "twin")


def damaged(
    rng: Random,
    objects: Mapping[str, bytes],
    twins: Mapping[str, bytes],
    suffix: str,
    kinds: tuple[int, ...] = tuple(range(len(KINDS))),
) -> tuple[str, dict[str, bytes]] | None:
    """Return (what was done, the objects after it) to one object whose key ends with `suffix`.

    twins  objects of the same shape that others wrote, by the key of the object that they look like
    None where what was drawn changes nothing.
    """
    keys = sorted(key for key in objects if key.endswith(suffix))
    key = rng.choice(keys)
    complete = objects[key]
    kind = rng.choice(kinds)
    after = dict(objects)
    if kind in (FLIP, FLIPS):
        out = bytearray(complete)
        for _ in range(1 if kind == FLIP else rng.randint(2, 5)):
            if out:
                bit = _bit(rng, complete, suffix)
                out[bit // 8] ^= 1 << bit % 8
        after[key] = bytes(out)
    elif kind == CUT:
        after[key] = complete[: rng.randrange(len(complete) + 1)]
    elif kind == EMPTY:
        after[key] = b""
    elif kind == LONGER:
        after[key] = complete + rng.randbytes(rng.randint(1, 90))
    elif kind == ZEROS:
        start = rng.randrange(len(complete) + 1)
        size = rng.choice((1, 4, 8, 61, 512, len(complete)))
        out = bytearray(complete)
        out[start : start + size] = bytes(len(out[start : start + size]))
        after[key] = bytes(out)
    elif kind in (SWAP, OTHER):
        other = rng.choice(keys if rng.random() < 0.8 else sorted(objects))
        after[key] = objects[other]
        if kind == SWAP:
            after[other] = complete
        elif rng.random() < 0.5:
            after[key] = (objects[other] * (len(complete) // max(len(objects[other]), 1) + 1))[
                : len(complete)
            ]
    else:
        after[key] = twins.get(key, complete)
    return None if after == dict(objects) else (f"{KINDS[kind]} {key}", after)


def _bit(rng: Random, complete: bytes, suffix: str) -> int:
    """A bit anywhere, or, in a log, often one that no CRC covers."""
    if suffix != LOG or rng.random() < 0.3:
        return rng.randrange(len(complete) * 8)
    at = rng.choice([head.position for head in headers(complete)])
    return (at + rng.randrange(CRC_START)) * 8 + rng.randrange(8)
