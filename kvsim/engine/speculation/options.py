"""`[speculative_config]`: tokens drafted ahead, by vLLM's names where it has them."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kvsim.engine.speculation.acceptance import Acceptance, DrawnAcceptance, RecordedAcceptance
from kvsim.plumbing.options import Options
from kvsim.speculation import Speculation

Chance = Annotated[float, Field(ge=0, le=1)]
Accepted = Annotated[int, Field(ge=0, le=1000)]
WAYS = (
    "acceptance_rate",
    "synthetic_acceptance_rates",
    "synthetic_acceptance_length",
    "acceptance_pattern",
)


class SpeculativeConfig(Options):
    """Tokens drafted ahead and verified together, as vLLM 0.33 schedules them.

    method: eagle, eagle3, mtp, draft_model, dflash or ngram. The first three are heads in the
    target's own cache. draft_model is a second model. dflash is a model that reads hidden states of
    the target and drafts all tokens in one pass. ngram looks drafts up in the text itself.
    num_speculative_tokens: drafted of each sequence for each of its steps. model, hf_config: the
    drafter, by its name or the path of its config.json; draft_model and dflash need one. Without, a
    head (eagle, eagle3, mtp) is one layer like the target's last. disable_lookahead_block_hashes: a
    block's hash does not cover the tokens after it, and a hit loses its last block instead. It is
    for eagle, eagle3 and mtp. All versions before 0.33 work so.

    One of the four keys below gives the number of accepted drafts. It is the same for a sequence
    under any schedule.

    acceptance_rate: the chance of each draft if all drafts before it were accepted.
    synthetic_acceptance_rates: for each position, the chance that this draft and all before it are
        accepted, as vLLM logs them; they never rise.
    synthetic_acceptance_length: the mean number of output tokens per step, from 1 to
        num_speculative_tokens + 1.
    acceptance_pattern: the numbers that the first, second, ... verification of each sequence
        accepts; after the last number the list starts again.

    draft_us: how long drafting takes after each step, where it was measured. If it is not given,
    the roofline times the drafter's passes; ngram takes no time, nor do drafts under linear step
    times.
    """

    method: Literal["eagle", "eagle3", "mtp", "ngram", "draft_model", "dflash"]
    num_speculative_tokens: int = Field(ge=1, le=1000)
    model: str | None = None
    hf_config: Path | None = None
    disable_lookahead_block_hashes: bool = False
    acceptance_rate: Chance | None = None
    synthetic_acceptance_rates: tuple[Chance, ...] | None = None
    synthetic_acceptance_length: float | None = Field(None, ge=1)
    acceptance_pattern: tuple[Accepted, ...] | None = Field(None, min_length=1)
    draft_us: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = [way for way in WAYS if getattr(self, way) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(WAYS)}, not {' and '.join(given) or 'none'}")
        tokens, rates = self.num_speculative_tokens, self.synthetic_acceptance_rates
        if rates is not None and len(rates) != tokens:
            raise ValueError(f"synthetic_acceptance_rates needs {tokens} chances, not {len(rates)}")
        if rates is not None and any(later > rate for rate, later in pairwise(rates)):
            raise ValueError("synthetic_acceptance_rates may not rise: each holds those before it")
        if (self.synthetic_acceptance_length or 1) > tokens + 1:
            raise ValueError(f"synthetic_acceptance_length is at most {tokens + 1}")
        if self.acceptance_pattern and max(self.acceptance_pattern) > tokens:
            raise ValueError(f"acceptance_pattern accepts more than the {tokens} drafts there are")
        if self.model is not None and self.hf_config is not None:
            raise ValueError("give one of model and hf_config")
        named = self.model is not None or self.hf_config is not None
        if self.method in ("draft_model", "dflash") and not named:
            raise ValueError(f"{self.method} needs model or hf_config")
        if self.method in ("mtp", "ngram") and named:
            raise ValueError(f"{self.method} has no model but the target")
        if self.disable_lookahead_block_hashes and not self.speculation.rules.keys_read_ahead:
            raise ValueError(f"disable_lookahead_block_hashes changes nothing for {self.method}")
        return self

    @property
    def speculation(self) -> Speculation:
        """The speculation rules (`Speculation`) that these options describe."""
        ahead = not self.disable_lookahead_block_hashes
        return Speculation(self.method, self.num_speculative_tokens, ahead)

    def acceptance(self, seed: int) -> Acceptance:
        """The acceptance model; if random, drawn with this seed."""
        if self.acceptance_pattern is not None:
            return RecordedAcceptance(self.acceptance_pattern)
        return DrawnAcceptance(self._rates(), seed)

    def _rates(self) -> tuple[float, ...]:
        """Probability by position that a draft and all before it are accepted."""
        tokens = self.num_speculative_tokens
        if self.synthetic_acceptance_rates is not None:
            return self.synthetic_acceptance_rates
        if self.acceptance_rate is not None:
            return tuple(self.acceptance_rate ** (place + 1) for place in range(tokens))
        assert self.synthetic_acceptance_length is not None
        accepted = self.synthetic_acceptance_length - 1  # equal but for one, as vLLM draws it
        return tuple(min(1.0, max(0.0, accepted - place)) for place in range(tokens))
