"""Beam search as vLLM serves it (0.33: entrypoints/generate/beam_search/online.py).

vLLM runs beam search outside the engine. Each beam sends one request of one token for each step;
the prefix cache shares their prompts.

The first step has one request, each later step `beam_width` requests with the prompt and a beam's
tokens so far. The requests of a step arrive together, when all of the previous step have their
token. The engine does not know that they belong together, so only whole blocks of a beam's tokens
are hit.
"""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from kvsim.request import Request, TokenRuns
from kvsim.workload.content import TokenIds
from kvsim.workload.expanded import Expanded


class Beams(Expanded):
    """`kind = "beams"`: the workload `of`, with outputs searched by beam_width beams.

    No beam ends before output_tokens. The best beam is fixed from the start: its tokens are the
    answer that a later turn continues. Each other beam continues a random beam of the previous
    step.
    """

    beam_width: Annotated[int, Field(ge=1, le=1024)]

    def count_of(self, request: Request) -> int:
        return 1 + self.beam_width * max(0, request.output_tokens - 1)

    def expanded(
        self, request: Request, rng: np.random.Generator, ids: TokenIds
    ) -> Iterator[Request]:
        """The requests of one beam search: one for the first step, then beam_width for each
        step.
        """
        steps = max(1, request.output_tokens)
        prompt = request.prompt_runs
        if prompt is None:
            prompt = ((ids.take(request.prompt_tokens), request.prompt_tokens),)
        best = ids.take(steps) if request.output_start is None else request.output_start
        beams: list[TokenRuns] = [()]
        before = request.after
        for step in range(steps):
            name = request.id if step == steps - 1 else f"{request.id}#{step}"
            for beam, tokens in enumerate(beams):
                yield request._replace(
                    id=name if len(beams) == 1 else f"{name}.{beam}",
                    prompt_tokens=request.prompt_tokens + step,
                    output_tokens=min(1, request.output_tokens),
                    max_tokens=1,
                    prompt_runs=(*prompt, *tokens),
                    output_start=None,
                    after=before,
                    think_ps=0 if step else request.think_ps,
                    session=request.id if request.session is None else request.session,
                    group=name if len(beams) > 1 else None,
                    any_user=request.any_user and not step,
                )
            before = name
            parents = rng.integers(len(beams), size=self.beam_width - 1).tolist()
            others = [(*beams[parent], (ids.take(1), 1)) for parent in parents]
            beams = [((best, step + 1),), *others]
