"""Who has most of a table, whatever came and went before."""

from hypothesis import given
from hypothesis import strategies as st

from firnline.base.owners import Owners

STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), max_size=200)


@given(STEPS)
def test_the_owner_with_most_is_known_after_any_order_of_adds_and_removals(
    steps: list[tuple[str, int, bool]],
) -> None:
    owners: Owners[int] = Owners()
    model: dict[str, dict[int, int]] = {}
    for thing, (owner, size, is_removed) in enumerate(steps):
        if is_removed and model.get(owner):
            gone = next(iter(model[owner]))
            del model[owner][gone]
            owners.remove(owner, gone)
        else:
            owners.add(owner, thing, size)
            model.setdefault(owner, {})[thing] = size
        sizes = {who: sum(things.values()) for who, things in model.items() if things}
        assert owners.size == sum(sizes.values())
        assert owners.count == sum(map(len, model.values()))
        found = owners.oldest_of_largest()
        if not sizes:
            assert found is None
            continue
        assert found is not None
        assert sizes[found[0]] == max(sizes.values())
        assert found[1] == next(iter(model[found[0]]))


def test_what_is_kept_does_not_grow_with_what_has_come_and_gone() -> None:
    owners: Owners[int] = Owners()
    for thing in range(20_000):
        owners.add("a", thing)
        if thing >= 10:
            owners.remove("a", thing - 10)
    assert len(owners._largest) < 2_000
