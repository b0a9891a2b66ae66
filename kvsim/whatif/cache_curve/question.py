"""The question and the answer of `kvsim cache`: hit rates of a prefix cache by size, for the
prompts of a scenario.
"""

from collections.abc import Callable
from typing import NamedTuple

from kvsim.memory.paged.options import Paged
from kvsim.plumbing.errors import InputError
from kvsim.scenario.build.context_parallel import BLOCK_SIZE
from kvsim.simulation import Simulation
from kvsim.whatif.cache_curve.belady import belady_hits
from kvsim.whatif.cache_curve.lru import HitCurve, lru_curve
from kvsim.whatif.cache_curve.matching import Matching, matching, unit_to_try, why
from kvsim.whatif.cache_curve.order import each_in_order
from kvsim.whatif.cache_curve.policies import PolicyRun, caching_paged, compare_policies
from kvsim.whatif.cache_curve.prompt_ends import found_at_ends
from kvsim.whatif.cache_curve.retention import RetentionRun, compare_retention
from kvsim.whatif.deployments import check_alike, check_alone
from kvsim.whatif.tier_sizes import all_ranks_bytes


class CacheQuestion(NamedTuple):
    """Options of `kvsim cache`.

    block_tokens: tokens per block; None for the allocator's block size. sizes: cache sizes in
    tokens; empty for a default range. outputs: cache generated tokens too. partial: count blocks
    that are not full. belady: also compute Belady's bound. policies: simulate each eviction policy
    in `jobs` processes. retention: simulate caching all, and as little as possible, of windows and
    states. tiers: caches larger than the pool continue in tiers after it.
    """

    block_tokens: int | None = None
    sizes: tuple[int, ...] = ()
    outputs: bool = True
    partial: bool = False
    belady: bool = False
    policies: bool = False
    retention: bool = False
    tiers: bool = False
    jobs: int | None = None

    def check(self) -> None:
        """Raise InputError for options that cannot be combined."""
        if self.belady and self.partial:
            raise InputError("is for full blocks", where="--belady", remedy="leave out --partial")
        if self.jobs is not None and not self.policies:
            raise InputError(
                "is for --policies, the only runs side by side",
                where="--jobs",
                value=self.jobs,
                remedy="leave it out, or add --policies",
            )
        if self.policies and self.block_tokens:
            raise InputError(
                "runs have the allocator's own blocks",
                where="--block-tokens",
                remedy="leave out --policies, or --set allocator.0.block_size=N",
            )


class SizeHits(NamedTuple):
    """Shares of the prompt tokens that a cache of a given size hits: under LRU, and under Belady's
    MIN (None: not computed).

    tier: the share hit after the device's pool evicted it, if the cache includes a tier that gets a
    copy of everything computed. None: not computed.
    """

    tokens: int
    lru: float
    belady: float | None
    tier: float | None


class CacheAnswer(NamedTuple):
    """The answer of `kvsim cache`.

    block_tokens: tokens per block. query_tokens: tokens of all prompts. pool_tokens: size of the
    scenario's pool. pool_ratio: hit rate of a cache of that size. unlimited: hit rate of an
    infinite cache. unlimited_tokens: the smallest size with that hit rate. token_bytes: KV bytes
    per token on all tensor-parallel ranks. why: a sentence if large blocks cause a low hit rate.
    replicas: number of separate caches, one per replica with the prompts routed to it; pool_tokens
    is the size of one.
    """

    block_tokens: int
    query_tokens: int
    pool_tokens: int
    pool_ratio: float
    unlimited: float
    unlimited_tokens: int
    sizes: tuple[SizeHits, ...]
    token_bytes: int
    why: str | None
    policies: tuple[PolicyRun, ...]
    retention: tuple[RetentionRun, ...]
    replicas: int = 1


def cache_answer(
    simulation: Simulation,
    question: CacheQuestion,
    progress: Callable[[str], None] = lambda _: None,
) -> CacheAnswer:
    """Answer a checked question. progress: called with the name of each full simulation as it
    begins.
    """
    _check_engines(simulation, question)
    retained: list[RetentionRun] = []
    if question.retention:
        paged = caching_paged(simulation.scenario.allocator)
        retained = compare_retention(simulation, paged, lambda name: progress(f"retention {name}"))
    policies: tuple[PolicyRun, ...] = ()
    if question.policies:
        policies = tuple(compare_policies(simulation, question.jobs, progress))
    streams = each_in_order(simulation)
    prompts = [sum(each.prompt_tokens for each in requests) for requests in streams]
    planned = None if question.block_tokens else _planned(simulation)
    block = question.block_tokens or (planned and planned.block_tokens) or _block_size(simulation)

    def curve_of(size: int) -> HitCurve:
        kept = {"outputs": question.outputs, "partial": question.partial}
        return HitCurve.together([lru_curve(requests, size, **kept) for requests in streams])

    pool = simulation.layout.tokens_in(simulation.pool.capacity_bytes)
    curve = curve_of(block)
    reason = None
    if planned is not None and block > BLOCK_SIZE:
        fine = curve_of(BLOCK_SIZE).unlimited
        if planned.is_to_blame(curve.unlimited, fine):
            unit, inside = unit_to_try(planned), None
            if unit is not None:
                shares = [
                    found_at_ends(requests, block, unit, outputs=question.outputs)
                    for requests in streams
                ]
                found = sum(share * of for share, of in zip(shares, prompts, strict=True))
                inside = found / sum(prompts) if sum(prompts) else 0.0
            reason = why(planned, curve.unlimited, fine, BLOCK_SIZE, inside)

    def most(size: int) -> float | None:
        if not question.belady:
            return None
        hits = sum(
            belady_hits(requests, size // block, block, outputs=question.outputs)
            for requests in streams
        )
        return hits / curve.query_tokens if curve.query_tokens else 0.0

    def behind(size: int) -> float | None:
        return max(0.0, curve.ratio(size) - curve.ratio(pool)) if question.tiers else None

    largest = (len(curve.hit_tokens) - 1) * block
    sizes = sorted(set(question.sizes)) or _sizes(block, pool, largest)
    return CacheAnswer(
        block,
        curve.query_tokens,
        pool,
        curve.ratio(pool),
        curve.unlimited,
        largest,
        tuple(SizeHits(size, curve.ratio(size), most(size), behind(size)) for size in sizes),
        all_ranks_bytes(simulation, 1),
        reason,
        policies,
        tuple(retained),
        len(streams),
    )


def _check_engines(simulation: Simulation, question: CacheQuestion) -> None:
    """Raise InputError if the replicas' engines differ, or for options that support only one
    engine.
    """
    check_alike(simulation.scenario, "cache")
    for name in ("policies", "retention"):
        if getattr(question, name):
            check_alone(simulation.scenario, f"cache --{name}")


def _planned(simulation: Simulation) -> Matching | None:
    """The block sizes of the first paged allocator with a prefix cache; None if there is none."""
    for options in simulation.scenario.allocator:
        if isinstance(options, Paged) and options.enable_prefix_caching:
            return matching(simulation, options)
    return None


def _block_size(simulation: Simulation) -> int:
    """Tokens per block of the first allocator that has blocks."""
    sizes = (getattr(each, "block_size", None) for each in simulation.scenario.allocator)
    return next(filter(None, sizes), BLOCK_SIZE)


def _sizes(block: int, pool: int, largest: int) -> list[int]:
    """Cache sizes in tokens: 64, 256, 1,024, ... blocks, below `largest`, and the pool's size."""
    sizes = {pool}
    size = block * 64
    while size < largest:
        sizes.add(size)
        size *= 4
    return sorted(sizes)
