"""Speculative decoding: its methods, the number of drafted tokens, and the engine's needs of each.

A drafter proposes tokens, and the target verifies them in one pass with its own next token.
Rejected ones are computed again later. What a method asks of schedulers and caches is as in vLLM
0.33 (config/vllm.py, config/speculative.py).
"""

from typing import NamedTuple

from kvsim.plumbing.errors import InputError

TABLE = "speculative_config"


class Method(NamedTuple):
    """Requirements of one method on schedulers and caches, as in vLLM 0.33.

    reads_target: the drafter reads the target's hidden states, and its layers have KV in the
    target's pool. keys_read_ahead: K and V of a token depend on the next token too. So a block's
    hash covers that token, or hits lose their last block. looks_up: drafts are looked up in the
    text, without a model. block_queries: all drafts are queries of one pass, after one query of the
    newest token, and a step has at most max_num_batched_tokens queries. input_slots: input
    positions of a request in addition to its tokens.
    """

    reads_target: bool = False
    keys_read_ahead: bool = False
    looks_up: bool = False
    block_queries: bool = False
    input_slots: int = 0


_HEAD = Method(reads_target=True, keys_read_ahead=True)
METHODS = {
    "eagle": _HEAD,
    "eagle3": _HEAD,
    "mtp": _HEAD,
    "draft_model": Method(input_slots=1),
    "ngram": Method(looks_up=True),
    "dflash": Method(reads_target=True, block_queries=True),
}


class Speculation(NamedTuple):
    """A method of vLLM's speculative_config with its num_speculative_tokens.

    hashes_ahead: the hash of a block covers the next token too (0.33's default); without, a hit of
    the drafter's groups loses its last block. modules: MTP layers that draft one after the other,
    each from what the one before it read and one token more. counts_inputs: tokens that a drafter
    reads in addition count against the step (not before vLLM 0.33).
    """

    method: str
    tokens: int
    hashes_ahead: bool = True
    modules: int = 1
    counts_inputs: bool = True

    def without_lookahead(self) -> "Speculation":
        """The speculation in an engine without look-ahead hashes or counted drafter inputs."""
        return self._replace(hashes_ahead=False, modules=1, counts_inputs=False)

    def without_ahead_hashes(self) -> "Speculation":
        """The speculation with a KV connector: hashes cover only the tokens of their own block."""
        return self._replace(hashes_ahead=False)

    def check(self) -> None:
        """Raise InputError for an unknown method, or num_speculative_tokens below 1."""
        if self.method not in METHODS:
            raise InputError(
                "unknown method of speculation",
                where=f"{TABLE}.method",
                value=repr(self.method),
                remedy=f"known: {', '.join(METHODS)}",
            )
        if self.tokens < 1:
            raise InputError(
                "a drafter drafts at least one token",
                where=f"{TABLE}.num_speculative_tokens",
                value=self.tokens,
            )

    @property
    def rules(self) -> Method:
        """Requirements of this method on schedulers and caches."""
        return METHODS[self.method]

    @property
    def queries_per_seq(self) -> int:
        """Queries of each sequence in the drafter's one pass; 0 where it drafts token by token."""
        return self.tokens + 1 if self.rules.block_queries else 0

    @property
    def lookahead_slots(self) -> int:
        """KV slots that a sequence reserves past its scheduled tokens."""
        return 0 if self.rules.looks_up else max(self.tokens, self.queries_per_seq)

    @property
    def hash_lookahead(self) -> int:
        """Tokens after a block that the block's hash covers too."""
        return self.prefill_lookahead if self.hashes_ahead and self.rules.keys_read_ahead else 0

    @property
    def prefill_lookahead(self) -> int:
        """Tokens of the prompt that the drafter reads ahead."""
        if self.method == "mtp" and min(self.modules, self.tokens) > 1:
            return self.tokens
        return int(self.rules.reads_target)

    @property
    def redrafted_tokens(self) -> int:
        """Newest computed tokens with KV that chained MTP modules may overwrite; blocks that hold
        these tokens get no hash yet.
        """
        return max(0, self.prefill_lookahead - 1)

    @property
    def drops_last_block(self) -> bool:
        """Whether a prefix cache hit loses its last block."""
        return self.rules.keys_read_ahead and not self.hashes_ahead

    @property
    def draft_input_slots(self) -> int:
        """Input positions of a request in addition to its tokens."""
        return self.rules.input_slots if self.counts_inputs else 0
