"""Checks of continuous batching with drafts: unsupported options, and the most sequences at
once.
"""

from typing import Protocol

from kvsim.engine.speculation.verifier import Verifier
from kvsim.plumbing.errors import InputError
from kvsim.support.parts import ServerParts
from kvsim.support.table import check
from kvsim.vllm.versions import Semantics, scheduled_as


class DraftedOptions(Protocol):
    """The options of continuous batching that matter with drafts."""

    @property
    def semantics(self) -> Semantics: ...

    @property
    def preemption_mode(self) -> str: ...

    @property
    def async_scheduling(self) -> bool: ...

    @property
    def max_num_batched_tokens(self) -> int: ...


def check_drafts(options: DraftedOptions, verifier: Verifier) -> None:
    """Raise InputError for options that are not simulated with drafts."""
    version, rules = scheduled_as(options.semantics), verifier.rules
    older = version is not scheduled_as("vllm-0.33")
    parts = ServerParts(
        drafts=True,
        one_pass=rules.block_queries,
        looks_up=rules.looks_up,
        unlike=not version.scheduling.speculates,
        semantics=options.semantics if older else "",
        swaps=options.preemption_mode == "swap",
        ahead=options.async_scheduling,
    )
    check(parts)
    least = max(verifier.input_slots, verifier.queries_per_seq)
    if options.max_num_batched_tokens <= least:
        raise InputError(
            "a step takes a token and the tokens that its drafter reads",
            where="scheduler.max_num_batched_tokens",
            value=options.max_num_batched_tokens,
            limit=f"at least {least + 1}",
            remedy="raise it, or draft by another method",
        )


def most_drafted_seqs(max_num_seqs: int, max_num_batched_tokens: int, verifier: Verifier) -> int:
    """Most sequences that run at once, such that the queries of a one-pass drafter stay within the
    token budget.
    """
    queries = verifier.queries_per_seq
    return min(max_num_seqs, max_num_batched_tokens // queries) if queries else max_num_seqs
