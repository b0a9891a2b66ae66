"""Flags and variables of engines as they stand in a text, whoever reads its commands.

Those that the commands lack which were read are named. They may be of a branch that was not
followed, of a second server, or of a word that a script puts together.
"""

import re

OF_ENGINES = re.compile(
    r"VLLM_|SGLANG_|SGL_|TRTLLM_|TLLM_|LLAMA_|GGML_|NCCL_|CUDA_(?!VISIBLE)|LMCACHE_|OMP_|HIP_"
)
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_FLAG = re.compile(r"(?<![\w/.$\\-])--[A-Za-z][\w.-]*\b")
_VARIABLE = re.compile(rf"\b(?:{OF_ENGINES.pattern})[A-Z0-9_]*\b")


def flags_in(text: str) -> set[str]:
    """Every `--flag` of a script or a manifest, as it is written; comments have none."""
    return set(_FLAG.findall(_COMMENT.sub("", text)))


def variables_in(text: str) -> set[str]:
    """Every variable of an engine that a script or a manifest names, but those of secrets."""
    found = set(_VARIABLE.findall(_COMMENT.sub("", text)))
    return {each for each in found if not SECRET.search(each)}
