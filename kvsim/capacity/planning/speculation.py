"""What a drafter asks of the cache: slots ahead, hashes ahead, blocks dropped from a hit."""

from typing import NamedTuple

from kvsim.plumbing.errors import InputError

# Drafters whose layers stand in the target's own cache and read its hidden states.
CHAINED = ("eagle", "eagle3", "mtp")
METHODS = (*CHAINED, "draft_model", "ngram")


class Speculation(NamedTuple):
    """A method of vLLM's speculative_config with its num_speculative_tokens.

    hashes_ahead: the hash of a block covers the next token too (0.33's default); without, a hit of
    the drafter's groups loses its last block.
    """

    method: str
    tokens: int
    hashes_ahead: bool = True

    def check(self) -> None:
        """Raise InputError on a method that is none, or no tokens."""
        if self.method not in METHODS:
            raise InputError(
                "unknown method of speculation",
                where="speculative_config.method",
                value=repr(self.method),
                remedy=f"known: {', '.join(METHODS)}",
            )
        if self.tokens < 1:
            raise InputError(
                "a drafter drafts at least one token",
                where="speculative_config.num_speculative_tokens",
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
        return int(self.chained and self.hashes_ahead)

    @property
    def prefill_lookahead(self) -> int:
        """Tokens of the prompt that the drafter reads ahead."""
        return int(self.chained)

    @property
    def drops_last_block(self) -> bool:
        """Whether a hit loses its last unit."""
        return self.chained and not self.hashes_ahead

    @property
    def draft_input_slots(self) -> int:
        """Input positions a request takes beside its tokens."""
        return int(self.method == "draft_model")
