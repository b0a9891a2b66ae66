"""Cells under random operations: against a naive model, and their own invariants."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.naive_cells import NaiveField

from kvsim.memory.cells.batch import equal_parts, num_tokens, slices
from kvsim.memory.cells.cache import DONE, NO_ROOM, CurrentCache
from kvsim.memory.cells.field import OPEN, ScatteredField, TokenRun
from kvsim.memory.cells.layer_cache import Cache, LayerCost
from kvsim.memory.cells.older import ContiguousField, OlderCache

SEQS = st.integers(0, 3)
BOUND = st.integers(0, 40)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("decode"), st.sets(SEQS, min_size=1, max_size=2), st.integers(1, 30)),
        st.tuples(st.just("decode"), st.sets(SEQS, min_size=1, max_size=1), st.integers(1, 3)),
        st.tuples(st.just("remove"), SEQS, BOUND, BOUND | st.just(OPEN)),
        st.tuples(st.just("share"), SEQS, SEQS, BOUND, BOUND | st.just(OPEN)),
        st.tuples(st.just("keep"), SEQS),
        st.tuples(st.just("shift"), SEQS, BOUND, BOUND | st.just(OPEN), st.integers(-20, 20)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(operations=OPERATIONS, window=st.sampled_from([0, 0, 5, 16]), size=st.integers(8, 64))
def test_cell_field_equals_a_naive_model(operations: list, window: int, size: int) -> None:
    field, naive = ScatteredField(size, window), NaiveField(size, window)
    for name, *arguments in operations:
        if name == "decode":
            seqs, num = tuple(sorted(arguments[0])), arguments[1]
            pos = max(naive.last(seq) for seq in seqs) + 1
            cells = field.find(num)
            assert (cells is not None) == naive.decode(seqs, pos, num)
            if cells is not None:
                field.place(cells, [TokenRun(seqs, pos, num)])
        else:
            getattr(field, name)(*arguments)
            getattr(naive, name)(*arguments)
        assert list(zip(field.positions, field.owners, strict=True)) == naive.content()
        assert field.head == naive.head
        assert [field.last_position(seq) for seq in range(4)] == [
            naive.last(seq) for seq in range(4)
        ]
        field.check()
        assert sum(run.num for run in field.runs()) == field.used


@settings(max_examples=200, deadline=None)
@given(
    batch=st.lists(st.tuples(SEQS, st.integers(1, 40)), min_size=1, max_size=8),
    size=st.integers(1, 20),
    by_number=st.booleans(),
)
def test_micro_batches_contain_each_token_of_the_batch_once_in_order(
    batch: list[tuple[int, int]], size: int, by_number: bool
) -> None:
    ends = dict.fromkeys(range(4), 0)
    runs = []
    for seq, num in batch:
        runs.append(TokenRun((seq,), ends[seq], num))
        ends[seq] += num
    for parts in slices(runs, size), equal_parts(runs, size, by_number=by_number):
        for seq in range(4):
            positions = [
                run.pos + at
                for part in parts
                for run in part
                if run.seqs == (seq,)
                for at in range(run.num)
            ]
            assert positions == list(range(ends[seq]))
        assert all(num_tokens(part) <= max(size, len(part)) for part in parts)
    for part in equal_parts(runs, size, by_number=True):
        numbers = list(dict.fromkeys(run.seqs[0] for run in part))
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_new_tokens_fill_holes_unlike_in_llama_cpp_of_march_2025() -> None:
    """96 cells are free, at most 60 of them adjacent. A prompt of 70 tokens fits only if it may
    fill several holes.
    """
    today = CurrentCache(4, 256, Cache(256, 1, LayerCost(1, 1)))
    older = OlderCache(256, 256, layers=2)
    for seq, num in enumerate((100, 60, 60)):
        assert today.decode([TokenRun((seq,), 0, num)]) == DONE
        assert older.decode([TokenRun((seq,), 0, num)]) == DONE
    today.remove(1)
    older.field.remove(1, 0, OPEN)
    assert older.field.longest_free() == (60, 100)
    assert today.decode([TokenRun((3,), 0, 70)]) == DONE
    assert older.decode([TokenRun((3,), 0, 70)]) == NO_ROOM
    older.request_compacting()
    older.update()
    assert older.decode([TokenRun((3,), 0, 70)]) == DONE


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(st.tuples(SEQS, st.integers(1, 12)), max_size=14),
    gone=st.sets(SEQS),
    most=st.integers(1, 6),
)
def test_defragmented_cells_hold_the_same_tokens(
    pieces: list[tuple[int, int]], gone: set[int], most: int
) -> None:
    field = ContiguousField(96)
    for seq, num in pieces:
        cells = field.find(num)
        if cells is not None:
            field.place(cells, [TokenRun((seq,), field.last_position(seq) + 1, num)])
    for seq in gone:
        field.remove(seq, 0, OPEN)
    tokens = sorted(zip(field.owners, field.positions, strict=True))
    holes = field.top - field.used
    moved = field.compact(most)
    assert sorted(zip(field.owners, field.positions, strict=True)) == tokens
    assert field.top - field.used <= holes
    assert bool(moved) == bool(holes)
    field.compact(1 << 20)
    assert field.top == field.used
    field.check()
