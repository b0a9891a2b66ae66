"""Find all flags and engine variables in a text, without parsing its commands.

Those that are in no parsed command are reported. They may belong to a branch that was not followed,
to a second server, or to a word that a script builds.
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
    """Every `--flag` in a script or manifest, as written; comments are skipped."""
    return set(_FLAG.findall(_COMMENT.sub("", text)))


def variables_in(text: str) -> set[str]:
    """Every engine variable in a script or manifest, without those that hold secrets."""
    found = set(_VARIABLE.findall(_COMMENT.sub("", text)))
    return {each for each in found if not SECRET.search(each)}
