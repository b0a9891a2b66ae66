"""Clients that declare the output length plus a margin."""

import math
from typing import Annotated

from pydantic import Field

from kvsim.workload.max_tokens.policy import MaxTokensOptions


class Factor(MaxTokensOptions):
    """max_tokens is the output times a factor, rounded up."""

    factor: Annotated[float, Field(ge=1)] = 2.0

    def declared(self, output_tokens: int) -> int:
        """max_tokens: ceil(output_tokens * factor)."""
        return math.ceil(output_tokens * self.factor)
