"""Checks of continuous batching with drafts: unsupported options, and most sequences at once."""

from typing import Protocol

from kvsim.engine.speculation.verifier import Verifier
from kvsim.plumbing.errors import InputError
from kvsim.vllm.versions import Semantics, scheduled_as


class DraftedOptions(Protocol):
    """The options of continuous batching that drafts bear on."""

    @property
    def semantics(self) -> Semantics: ...

    @property
    def preemption_mode(self) -> str: ...

    @property
    def async_scheduling(self) -> bool: ...

    @property
    def max_num_batched_tokens(self) -> int: ...


def check_drafts(options: DraftedOptions, verifier: Verifier) -> None:
    """InputError for options under which no drafts are simulated."""
    version, rules = scheduled_as(options.semantics), verifier.rules
    if not version.scheduling.speculates:
        raise InputError(
            "it drafts tokens by other rules, which are not simulated",
            where="scheduler.semantics",
            value=options.semantics,
            remedy="vllm-0.27 or vllm-0.33, or leave speculative_config out",
        )
    if rules.block_queries and version is not scheduled_as("vllm-0.33"):
        raise InputError(
            "a drafter that drafts all tokens in one pass is simulated as vLLM 0.33 has it",
            where="scheduler.semantics",
            value=options.semantics,
            remedy="vllm-0.33, or draft by another method",
        )
    if options.preemption_mode == "swap":
        raise InputError(
            "sequences with tokens drafted ahead are recomputed, not swapped",
            where="scheduler.preemption_mode",
            value=options.preemption_mode,
            remedy="recompute",
        )
    if options.async_scheduling and rules.looks_up:
        raise InputError(
            "drafts found in the text itself are known too late for the next step",
            where="scheduler.async_scheduling",
            value=True,
            remedy="false, or another method",
        )
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
    """Sequences that run at once: the queries of a drafter's one pass stay within the budget."""
    queries = verifier.queries_per_seq
    return min(max_num_seqs, max_num_batched_tokens // queries) if queries else max_num_seqs
