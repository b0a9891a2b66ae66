"""The tree over runs against a tree over single tokens, and sums against loops."""

from hypothesis import given
from hypothesis import strategies as st

from kvsim.memory.ledger import Jumps
from kvsim.memory.radix.content import Content, cut
from kvsim.memory.radix.tree import RadixTree

# Few ids, so that sequences share beginnings and runs meet in the middle.
RUNS = st.lists(st.tuples(st.sampled_from([0, 3, 5, 40]), st.integers(0, 9)), max_size=5)
PAGES = st.sampled_from([1, 2, 3, 5])


def tokens_of(runs: object) -> list[int]:
    return [start + i for start, length in runs for i in range(length)]  # type: ignore[attr-defined]


@given(RUNS, RUNS, st.integers(0, 45), st.integers(0, 45))
def test_content_runs_are_cut_and_compared_like_token_lists(
    runs: list[tuple[int, int]], others: list[tuple[int, int]], first: int, second: int
) -> None:
    tokens = tokens_of(runs)
    begin, end = sorted((min(first, len(tokens)), min(second, len(tokens))))
    content = Content(tuple(runs))
    assert tokens_of(content.pieces(begin, end)) == tokens[begin:end]
    theirs = Content(tuple(others)).pieces(0, len(tokens_of(others)))
    same = 0
    while same < min(end - begin, len(tokens_of(theirs))):
        if tokens[begin + same] != tokens_of(theirs)[same]:
            break
        same += 1
    assert content.common(begin, theirs, end) == same
    head, tail = cut(theirs, min(first, len(tokens_of(theirs))))
    assert tokens_of(head) + tokens_of(tail) == tokens_of(theirs)


class TokenTrie:
    """The inserted prefixes as a set of page sequences, without nodes, access times or locks."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.pages: set[tuple[int, ...]] = set()

    def find(self, tokens: list[int]) -> int:
        at = 0
        while at + self.page <= len(tokens) and tuple(tokens[: at + self.page]) in self.pages:
            at += self.page
        return at

    def insert(self, tokens: list[int]) -> None:
        ends = range(self.page, len(tokens) + 1, self.page)
        self.pages.update(tuple(tokens[:end]) for end in ends)


@given(PAGES, st.lists(st.tuples(st.booleans(), RUNS), max_size=14))
def test_radix_tree_finds_inserted_prefixes(
    page: int, steps: list[tuple[bool, list[tuple[int, int]]]]
) -> None:
    tree, trie = RadixTree(page), TokenTrie(page)
    for inserts, runs in steps:
        tokens, content = tokens_of(runs), Content(tuple(runs))
        whole = len(tokens) - len(tokens) % page
        known = trie.find(tokens)
        assert tree.find(content, len(tokens)).tokens == known
        if inserts:
            assert tree.insert(content, whole)[1] == known
            trie.insert(tokens)
        else:
            assert tree.look_up(content, len(tokens)).tokens == known
        tree.check()
        assert tree.evictable == len(trie.pages) * page


@given(PAGES, st.lists(st.tuples(RUNS, st.booleans()), max_size=14), st.integers(0, 60))
def test_all_radix_nodes_but_locked_ones_can_be_evicted(
    page: int, sequences: list[tuple[list[tuple[int, int]], bool]], asked: int
) -> None:
    tree, held = RadixTree(page), []
    for runs, locks in sequences:
        tokens = len(tokens_of(runs))
        whole = tokens - tokens % page
        node, _ = tree.insert(Content(tuple(runs)), whole)
        if locks:
            tree.lock(node)
            held.append((node, Content(tuple(runs)), whole))
        tree.check()
    before = tree.evictable
    gone = tree.evict(asked)
    tree.check()
    assert min(asked, before) <= gone == before - tree.evictable
    assert all(tree.find(content, whole).tokens == whole for _, content, whole in held)
    for node, _, _ in held:
        tree.unlock(node)
    tree.evict(1 << 30)
    tree.check()
    assert (tree.num_nodes, tree.evictable, tree.locked) == (0, 0, 0)


def test_least_recently_used_leaf_is_evicted_first_as_a_whole() -> None:
    tree = RadixTree(1)
    shared, left, right = ((0, 10),), ((0, 10), (100, 5)), ((0, 10), (200, 7))
    for runs in (shared, left, right):
        tree.insert(Content(runs), sum(length for _, length in runs))
    tree.look_up(Content(left), 15)  # now `right` is the older one
    assert tree.evict(1) == 7
    assert tree.find(Content(right), 17).tokens == 10
    assert tree.evict(1) == 5  # and the parent only when no child is left
    assert tree.evict(1) == 10


@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 17), st.integers(1, 12), st.booleans())
def test_repeated_ledger_changes_sum_like_single_ones(
    count: int, t: int, size: int, times: int, begun: bool
) -> None:
    one_by_one, repeated = Jumps(), Jumps()
    for jumps in (one_by_one, repeated):
        if begun:
            jumps.add(3, 5)
    for index in range(times):
        one_by_one.add(count, t + index * size)
    repeated.repeat(count, t, size, times)
    for sums in ("total", "first", "second"):
        assert getattr(repeated, sums) == getattr(one_by_one, sums)
