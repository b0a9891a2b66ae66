"""Any workload on a server without a KV cache: every output token recomputes all tokens before
it.
"""

from collections.abc import Iterator

import numpy as np

from kvsim.request import Request
from kvsim.workload.content import TokenIds
from kvsim.workload.expanded import Expanded


class Uncached(Expanded):
    """`kind = "uncached"`: the workload `of`, where every output token is a request of its own.

    The prompt of such a request is the original prompt and all output tokens before it. It arrives
    as soon as the previous token is finished. Requests share no tokens, so a prefix cache hits
    nothing.
    """

    def count_of(self, request: Request) -> int:
        return max(1, request.output_tokens)

    def expanded(
        self, request: Request, rng: np.random.Generator, ids: TokenIds
    ) -> Iterator[Request]:
        """One request for each output token, each after the previous one."""
        before = request.after
        count = self.count_of(request)
        for index in range(count):
            token = request._replace(
                id=request.id if index == count - 1 else f"{request.id}#{index + 1}",
                prompt_tokens=request.prompt_tokens + index,
                output_tokens=min(1, request.output_tokens),
                max_tokens=1,
                prompt_runs=None,
                output_start=None,
                after=before,
                think_ps=0 if index else request.think_ps,
                session=request.id if request.session is None else request.session,
                any_user=request.any_user and not index,
            )
            before = token.id
            yield token
