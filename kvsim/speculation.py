"""Speculative decoding: its methods, the number of drafted tokens, and the engine's needs of each.

A drafter proposes tokens, the target verifies them in one pass with its own next token, and what
it does not confirm is computed again later. What a method asks of schedulers and caches is as in
vLLM 0.33 (config/vllm.py, config/speculative.py).
"""

from typing import NamedTuple

from kvsim.plumbing.errors import InputError

# Drafters whose layers stand in the target's own cache and read its hidden states.
CHAINED = ("eagle", "eagle3", "mtp")
METHODS = (*CHAINED, "draft_model", "ngram")
TABLE = "speculative_config"


class Speculation(NamedTuple):
    """A method of vLLM's speculative_config with its num_speculative_tokens.

    hashes_ahead: the hash of a block covers the next token too (0.33's default); without, a hit of
    the drafter's groups loses its last block. modules: MTP layers that draft one after the other,
    each from what the one before it read and one token more. counts_inputs: what a drafter reads
    beside the tokens counts against the step (not before vLLM 0.33).
    """

    method: str
    tokens: int
    hashes_ahead: bool = True
    modules: int = 1
    counts_inputs: bool = True

    def without_lookahead(self) -> "Speculation":
        """The same in an engine that neither hashes nor reads ahead."""
        return self._replace(hashes_ahead=False, modules=1, counts_inputs=False)

    def check(self) -> None:
        """Raise InputError on a method that is none, or no tokens."""
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
    def chained(self) -> bool:
        """Whether the drafter reads the target's hidden states."""
        return self.method in CHAINED

    @property
    def lookahead_slots(self) -> int:
        """Slots reserved past the scheduled tokens."""
        return 0 if self.method == "ngram" else self.tokens

    @property
    def hash_lookahead(self) -> int:
        """Tokens after a unit that its hash covers too."""
        return self.prefill_lookahead if self.hashes_ahead else 0

    @property
    def prefill_lookahead(self) -> int:
        """Tokens of the prompt that the drafter reads ahead."""
        if self.method == "mtp" and min(self.modules, self.tokens) > 1:
            return self.tokens
        return int(self.chained)

    @property
    def redrafted_tokens(self) -> int:
        """Of the tokens whose slots are valid, the last ones that chained modules may yet write
        again: no hash covers them.
        """
        return max(0, self.prefill_lookahead - 1)

    @property
    def drops_last_block(self) -> bool:
        """Whether a hit loses its last unit."""
        return self.chained and not self.hashes_ahead

    @property
    def draft_input_slots(self) -> int:
        """Input positions a request takes beside its tokens."""
        return int(self.method == "draft_model" and self.counts_inputs)
