"""One large record is put into its batch a part at a time: the bytes are those of one go."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from firnline.base.background import run_to_completion
from firnline.records.build import NewRecord, build_batch, build_record_in_slices


@given(st.binary(max_size=200), st.lists(st.binary(max_size=200)), st.integers(-1, 2**62))
def test_a_record_in_parts_is_the_batch_of_the_complete_record(
    key: bytes, parts: list[bytes], time_ms: int
) -> None:
    batch = run_to_completion(build_record_in_slices(key, deque(parts), time_ms))
    assert batch == build_batch([NewRecord(key, b"".join(parts), time_ms)])


def test_each_part_is_a_step_of_its_own_and_let_go_of() -> None:
    parts = deque([b"a", b"b", b"c"])
    left = [len(parts) for _ in build_record_in_slices(b"key", parts, 0)]
    assert left == [2, 1, 0]
