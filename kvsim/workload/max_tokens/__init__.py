"""The max_tokens that clients declare: one module a policy, registered here by one line each."""

from kvsim.plumbing.registry import Registry
from kvsim.workload.max_tokens.policy import MaxTokensOptions

__all__ = ["MAX_TOKENS", "MaxTokensOptions"]

MAX_TOKENS: Registry[MaxTokensOptions] = Registry(
    "max_tokens policy",
    {
        "none": "kvsim.workload.max_tokens.none:Undeclared",
        "exact": "kvsim.workload.max_tokens.exact:Exact",
        "factor": "kvsim.workload.max_tokens.factor:Factor",
        "next-pow2": "kvsim.workload.max_tokens.next_pow2:NextPowerOfTwo",
        "fixed": "kvsim.workload.max_tokens.fixed:Fixed",
    },
)
