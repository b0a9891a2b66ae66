"""The interface of a policy for max_tokens."""

from kvsim.plumbing.options import Options


class MaxTokensOptions(Options):
    """Options of one max_tokens policy; the fields are the keys of `[workload.max_tokens]` other
    than `kind`.
    """

    def declared(self, output_tokens: int) -> int | None:
        """The max_tokens of a request with `output_tokens` of output; None: not set.

        Never less than output_tokens, except under a policy that cuts outputs.
        """
        raise NotImplementedError(type(self).__name__)  # every registered policy overrides this
