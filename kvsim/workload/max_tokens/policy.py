"""What a policy for declared output lengths answers."""

from kvsim.plumbing.options import Options


class MaxTokensOptions(Options):
    """Options of one policy; its fields are the keys beside `kind` in `[workload.max_tokens]`."""

    def declared(self, output_tokens: int) -> int | None:
        """What a client declares whose output will have `output_tokens`; None: nothing.

        Never less than output_tokens, except where the policy says that it ends the output.
        """
        raise NotImplementedError(type(self).__name__)  # every registered policy overrides this
