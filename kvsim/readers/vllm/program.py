"""vLLM as a `Program`: its command, container image and flags, for the readers of command lines."""

import re

from kvsim.readers.parsing.commands import Program
from kvsim.readers.vllm.args import ARGUMENTS, COMPILATION, LISTS, SWITCHES

PROGRAM = Program(
    serves=re.compile(
        r"(?:\bvllm|\$\{?\w*VLLM\w*\}?[\"']?)\s+serve\b|vllm\.entrypoints\.(?:openai\.)?api_server\b"
    ),
    image=re.compile(r"vllm/vllm-openai(?::v?(\d+\.\d+(?:\.\d+)?))?\S*"),
    known=ARGUMENTS,
    short={
        "-tp": "tensor_parallel_size",
        "-pp": "pipeline_parallel_size",
        "-dp": "data_parallel_size",
        "-dcp": "decode_context_parallel_size",
        "-ep": "enable_expert_parallel",
        "-q": "quantization",
        "-cc": COMPILATION,
    },
    switches=SWITCHES,
    bare=re.compile(
        r"^(trust_remote_code|headless|no_\w+|disable_\w+|allow_credentials|"
        r"return_tokens_as_token_ids|skip_tokenizer_init|enable_\w+)$"
    ),
    lists=LISTS,
    abbreviates=True,
)
