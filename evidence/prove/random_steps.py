"""Random schedules on small test allocators, which drive the equality tests of KV stores.

Every step runs some sequences, each with a chunk of its prompt or one new token. Between steps
sequences arrive (some share a prefix of another one's blocks), fork, are preempted and resumed, and
finish. The pool is tight, so memory is reused all the time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.random import PCG64, Generator

from evidence.prove.random_places import Blocks, Capacities, RandomPlaces, Ranges

StoreKind = Literal["paged", "max-buffer", "doubling", "buffers"]
STORE_KINDS: tuple[StoreKind, ...] = ("paged", "max-buffer", "doubling", "buffers")

SLOTS = 192
BLOCK_SIZE = 4
LONGEST = 48

Record = dict[str, Any]


@dataclass(slots=True)
class _Live:
    id: str
    tokens: list[int]  # all it has, computed or not
    prompt: int
    final: int
    computed: int = 0
    found: list[int] = field(default_factory=list)  # the prefix it took over, until it is told


def places(kind: StoreKind, *, broken: bool = False) -> RandomPlaces:
    """The test allocator for a kind of store; a broken one allocates some memory twice."""
    if kind == "paged":
        return Blocks(SLOTS // BLOCK_SIZE, BLOCK_SIZE, broken=broken)
    if kind == "max-buffer":
        return Ranges(SLOTS, first=LONGEST, broken=broken)
    if kind == "doubling":
        return Ranges(SLOTS, first=4, broken=broken)
    return Capacities(first=4)


def random_steps(
    kind: StoreKind, seed: int, *, steps: int = 60, vocab: int = 50, broken: bool = False
) -> Iterator[Record]:
    """Step records for a store of SLOTS slots (blocks of BLOCK_SIZE), equal for equal seeds.

    Each is in the form of `kvsim.backend.step.Step.from_record`; "release" lists sequences that
    left.
    """
    return _Driver(places(kind, broken=broken), Generator(PCG64(seed)), vocab).run(steps)


class _Driver:
    def __init__(self, places: RandomPlaces, random: Generator, vocab: int) -> None:
        self.places = places
        self.random = random
        self.vocab = vocab
        self.live: list[_Live] = []
        self.waiting: list[_Live] = []
        self.names = 0
        self.copies: list[tuple[int, int, int]] = []

    def run(self, steps: int) -> Iterator[Record]:
        done = 0
        while done < steps:
            self._happen()
            seqs = [entry for seq in list(self.live) if (entry := self._span(seq))]
            if seqs:
                done += 1
                yield {"seqs": seqs, "copies": self.copies}
                self.copies = []  # those of a turn in which nobody ran wait for the next step
            self._finish()

    def _chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def _happen(self) -> None:
        if self._chance(0.4) or not self.live:
            self._arrive()
        if self.live and self._chance(0.15):
            self._fork(self.live[self.random.integers(len(self.live))])
        if len(self.live) > 1 and self._chance(0.1):
            self._preempt(self.live[self.random.integers(len(self.live))])

    def _arrive(self) -> None:
        if self.waiting and self._chance(0.6):
            seq = self.waiting.pop(0)
            # It comes back under the same name, computes all again, and so has no prefix to tell.
            self.live.append(seq)
            return
        prompt = int(self.random.integers(1, 24))
        tokens = [int(token) for token in self.random.integers(0, self.vocab, prompt)]
        final = int(self.random.integers(prompt + 1, LONGEST))
        seq = _Live(self._name(), tokens, prompt, final)
        if self.live and self._chance(0.5):
            donor = self.live[self.random.integers(len(self.live))]
            hit = self.places.share(donor.id, seq.id, donor.computed)
            seq.found = donor.tokens[:hit]
            seq.computed = hit
            seq.tokens = donor.tokens[:hit] + tokens
            seq.final = min(len(seq.tokens) + 8, LONGEST)
            seq.tokens = seq.tokens[: seq.final]
        self.live.append(seq)

    def _fork(self, parent: _Live) -> None:
        if not parent.computed:
            return
        child = _Live(self._name(), parent.tokens[: parent.computed], 0, parent.final)
        copies = self.places.fork(parent.id, child.id, parent.computed)
        if copies is None:
            return
        self.copies += copies
        child.computed = parent.computed
        child.found = list(child.tokens)
        self.live.append(child)

    def _preempt(self, seq: _Live) -> None:
        self.places.release(seq.id)
        self.live.remove(seq)
        seq.computed = 0
        if seq.found:  # it never ran: nobody knows its name yet
            return
        self.waiting.append(seq)

    def _span(self, seq: _Live) -> Record | None:
        if self._chance(0.2) or seq.computed >= seq.final:
            return None
        pending = len(seq.tokens) - seq.computed
        if not pending:
            seq.tokens.append(int(self.random.integers(0, self.vocab)))
            pending = 1
        new = int(self.random.integers(1, pending + 1))
        copies = self.places.grow(seq.id, seq.computed, seq.computed + new)
        if copies is None:
            self._preempt(seq)
            return None
        self.copies += copies
        entry = {
            "id": seq.id,
            "tokens": seq.tokens[seq.computed : seq.computed + new],
            "start": seq.computed,
            **self.places.where(seq.id),
        }
        if seq.found:
            entry["prefix"], seq.found = seq.found, []
        seq.computed += new
        return entry

    def _finish(self) -> None:
        for seq in [seq for seq in self.live if seq.computed >= seq.final or self._chance(0.01)]:
            self.places.release(seq.id)
            self.live.remove(seq)

    def _name(self) -> str:
        self.names += 1
        return f"s{self.names}"
