"""The encoder cache and its budget (vLLM 0.33: v1/core/encoder_cache_manager.py, and
_try_schedule_encoder_inputs in v1/core/sched/scheduler.py).

A multimodal item of a prompt is encoded whole, in the step with the chunk that reaches it. Its
embeddings stay referenced until the prompt is computed beyond the item. Then they stay cached until
they are evicted, and an equal item hits them. A chunk ends before the first item that does not fit
in the step's budget or in the cache.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from collections.abc import Sequence as Row
from operator import attrgetter

from kvsim.engine.limits.limit import ChunkLimits
from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.memory.allocator import Refusal
from kvsim.request import PromptItem, Request
from kvsim.sequence import Sequence, by_order

_start, _end = attrgetter("start_tokens"), attrgetter("end_tokens")


class EncoderCache(ChunkLimits):
    """Limits the multimodal items of a step.

    max_input_tokens: embeddings that one step may compute. cache_tokens: size of the cache in
    embeddings. whole_items: a chunk ends before an item, not inside it, if it can. overlaps:
    asynchronous scheduling. ahead_tokens: prompt tokens that a drafter reads after the end of a
    chunk; it needs the embeddings of items there. most_items: most items of a prompt. token_ps:
    encoder time for each embedding.

    num_encoded: items encoded so far. num_found: items hit in the cache. encoded_tokens: embeddings
    computed. free_tokens: free embeddings of the cache. freeable_tokens: free and evictable ones.
    encoding: items that this step encodes, as indices into the items of each sequence.
    """

    def __init__(
        self,
        max_input_tokens: int,
        cache_tokens: int,
        *,
        whole_items: bool,
        overlaps: bool,
        ahead_tokens: int = 0,
        most_items: int | None = None,
        token_ps: int = 0,
    ) -> None:
        self._most_items = most_items
        self._token_ps = token_ps
        self._max_input_tokens = max_input_tokens
        self._cache_tokens = cache_tokens
        self._whole_items = whole_items
        self._overlaps = overlaps
        self._ahead_tokens = ahead_tokens
        self.free_tokens = self.freeable_tokens = cache_tokens
        self.num_encoded = self.num_found = self.encoded_tokens = 0
        self.encoding: dict[Sequence, list[int]] = {}
        self._users: dict[int, set[Sequence]] = {}  # by cached content
        self._tokens: dict[int, int] = {}  # by cached content
        self._unused: dict[int, int] = {}  # tokens of contents without users, oldest first
        self._held: dict[Sequence, set[int]] = {}  # places of the items a sequence refers to
        self._own: dict[Sequence, set[int]] = {}  # of these, the places that it encoded itself
        self._known: dict[Sequence, int] = {}  # prompt tokens, once the last chunk is scheduled
        self._trailing: set[Sequence] = set()  # decode, and still hold their last item
        self._left = 0  # of the step's budget
        self._evicts = False  # in this step
        self._found = False  # whether a prompt with a cached prefix asked in this step
        self._asked: tuple[Sequence, list[int], list[int], int] | None = None

    def refusal(self, request: Request) -> Refusal | None:
        if not request.items:
            return None
        most = self._most_items
        if most is not None and len(request.items) > most:
            return Refusal(
                "its prompt has more items than a prompt may have",
                len(request.items),
                most,
                "items (limit_mm_per_prompt)",
                "raise the limit",
            )
        largest = max(item.tokens for item in request.items)
        limit = min(self._max_input_tokens, self._cache_tokens)
        if largest <= limit:
            return None
        return Refusal(
            "an item of its prompt is encoded at once, and no step has room for it",
            largest,
            limit,
            "tokens (max_num_encoder_input_tokens, encoder_cache_size)",
            "set scheduler.max_tokens_per_mm_item to the model's largest item",
        )

    def begin(self) -> None:
        self._left = self._max_input_tokens
        self._evicts = self._found = False
        if self.encoding:
            self.encoding = {}

    # --- a chunk --------------------------------------------------------------------------------

    def allowed(self, seq: Sequence, start_tokens: int, new_tokens: int) -> int:
        self._asked = None
        items = seq.request.items
        if not items or not new_tokens:
            return new_tokens
        self._found |= start_tokens > 0
        first = bisect_right(items, start_tokens, key=_end)
        ahead = self._ahead_tokens
        last = bisect_left(items, start_tokens + new_tokens + ahead, key=_start)
        chosen: list[int] = []
        again: list[int] = []
        contents: set[int] = set()
        tokens, left = 0, self._left
        for place in range(first, last):
            item = items[place]
            splits = start_tokens + new_tokens < item.end_tokens
            if self._whole_items and start_tokens <= item.start_tokens and splits:
                new_tokens = max(0, item.start_tokens - start_tokens - ahead)
                break
            if item.content in contents:
                again.append(place)
                continue
            if self._refer(seq, place, item):
                continue
            if item.tokens > left or not self._make_room(tokens + item.tokens):
                new_tokens = min(new_tokens, max(0, item.start_tokens - start_tokens))
                break
            tokens, left = tokens + item.tokens, left - item.tokens
            contents.add(item.content)
            chosen.append(place)
        self._asked = seq, chosen, again, left
        return new_tokens

    def scheduled(self, chunk: ScheduledChunk) -> int:
        asked, seq = self._asked, chunk.seq
        self._asked = None
        if (chunk.samples and seq in self._held) or (asked is not None and chunk.samples):
            self._known[seq] = chunk.end_tokens
        if asked is None or not asked[1]:
            return 0
        _, chosen, again, self._left = asked
        encoded = self.encoded_tokens
        items = seq.request.items
        for place in chosen:
            item = items[place]
            self._users.setdefault(item.content, set())
            self._tokens[item.content] = item.tokens
            self._hold(seq, place, item)
            self.free_tokens -= item.tokens
            self.freeable_tokens -= item.tokens
            self.encoded_tokens += item.tokens
        for place in again:
            self._refer(seq, place, items[place])
        self._own.setdefault(seq, set()).update(chosen)
        self.num_encoded += len(chosen)
        self.encoding[seq] = chosen
        return (self.encoded_tokens - encoded) * self._token_ps

    def declined(self, seq: Sequence) -> None:
        self._let_go(seq)

    def released(self, seq: Sequence) -> None:
        for place in self.encoding.pop(seq, ()):
            self._left += seq.request.items[place].tokens
        self._let_go(seq)
        self._own.pop(seq, None)
        self._known.pop(seq, None)
        self._trailing.discard(seq)

    # --- what returns ---------------------------------------------------------------------------

    def returned(self, plan: Plan, leaving: Row[Sequence]) -> None:
        if not self._held:
            return
        passed = {chunk.seq: chunk.end_tokens for chunk in plan.chunks}
        sampled = {chunk.seq for chunk in plan.chunks if chunk.samples}
        for seq in self._trailing - set(plan.passed_over):
            passed.setdefault(seq, self._known[seq])
        for seq in leaving:
            passed.setdefault(seq, 0)
        for seq in sorted(passed.keys() & self._held.keys(), key=by_order):
            ends = passed[seq]
            own, held = self._own.get(seq, ()), list(self._held[seq])
            if self._overlaps and seq not in self._trailing:
                ends = self._known[seq] - 1 if seq in self._known else seq.num_computed
            items = seq.request.items
            for place in held:
                if items[place].end_tokens <= ends or seq in leaving:
                    self.num_found += place not in own
                    self._drop(seq, place)
            if seq not in self._held:
                self._known.pop(seq, None)
                self._trailing.discard(seq)
            elif seq in sampled:
                self._trailing.add(seq)

    def stay(self) -> bool:
        # A cached beginning may be evicted in a later step. Other items are then asked for.
        return not (self._evicts or self._found or self._known.keys() & self._held.keys())

    # --- the cache ------------------------------------------------------------------------------

    def _refer(self, seq: Sequence, place: int, item: PromptItem) -> bool:
        """Add a reference of `seq` to the cached item, number `place` of its items; False: it is
        not cached.
        """
        users = self._users.get(item.content)
        if users is None:
            return False
        if not users:
            self.freeable_tokens -= self._unused.pop(item.content)
        self._hold(seq, place, item)
        return True

    def _hold(self, seq: Sequence, place: int, item: PromptItem) -> None:
        self._users[item.content].add(seq)
        self._held.setdefault(seq, set()).add(place)

    def _make_room(self, tokens: int) -> bool:
        """Evict the oldest unreferenced items until `tokens` more embeddings fit; False if they
        cannot.
        """
        if tokens <= self.free_tokens:
            return True
        if tokens > self.freeable_tokens:
            return False
        while tokens > self.free_tokens:
            content = next(iter(self._unused))
            self.free_tokens += self._unused.pop(content)
            del self._users[content], self._tokens[content]
            self._evicts = True
        return True

    def _let_go(self, seq: Sequence) -> None:
        for place in list(self._held.get(seq, ())):
            self._drop(seq, place)

    def _drop(self, seq: Sequence, place: int) -> None:
        """Drop the reference of `seq` to the item. If the prompt has equal items, the reference
        ends with the last one.
        """
        items, held = seq.request.items, self._held[seq]
        content = items[place].content
        held.remove(place)
        if not held:
            del self._held[seq]
        if _among(content, items, held):
            return
        users = self._users[content]
        users.discard(seq)
        if not users:
            self._unused[content] = tokens = self._tokens[content]
            self.freeable_tokens += tokens


def _among(content: int, items: Row[PromptItem], places: Iterable[int]) -> bool:
    """Whether an item at one of the indices `places` has this content."""
    return any(items[place].content == content for place in places)
