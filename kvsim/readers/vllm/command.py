"""A `vllm serve` command line: in a shell script, a file of its own, a manifest, or on kvsim's own
command line.

Only arguments that `vllm_args` knows are read; of the others the names are reported and the values,
which may be keys and tokens, are not looked at.
"""

import re
import shlex
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description
from kvsim.readers.parsing.listed_words import listed_words
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source
from kvsim.readers.vllm.args import KNOWN, settings_of

_START = re.compile(
    r"\bvllm\s+serve\b|vllm\.entrypoints\.(?:openai\.)?api_server\b|vllm/vllm-openai\S*"
)
_SERVES = re.compile(r"\bvllm\s+serve\b|vllm\.entrypoints\.(?:openai\.)?api_server\b")
_MANIFEST = re.compile(r"^[ \t]*(?:-[ \t]+)?(?:command|args|entrypoint):", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{?\w+")
_VERSIONED_IMAGE = re.compile(r"vllm/vllm-openai:v?(\d+\.\d+(?:\.\d+)?)")
SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
}
SWITCHES = frozenset(
    (
        "enforce_eager",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "disable_hybrid_kv_cache_manager",
        "scheduler_reserve_full_isl",
        "async_scheduling",
    )
)
# Flags without a value that are not read: the word behind one may be the model.
_BARE = re.compile(
    r"(trust_remote_code|headless|no_\w+|disable_\w+|allow_credentials|return_tokens_as_token_ids|"
    r"skip_tokenizer_init|enable_(?!prefix_caching|chunked_prefill)\w+|language_model_only)$"
)
_OPERATORS = frozenset(("&&", "||", ";", "|", "&", ">", ">>", "2>&1", "&>", "<", "2>"))


class VllmCommand(Source):
    """`vllm serve MODEL --flags`, or the API server's module, or its image."""

    rank = ASKED_FOR
    what = "a `vllm serve` command line"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By the command, unless an engine's log quotes it."""
        lines = source.text.splitlines()
        return source.document is None and (
            _is_manifest(source.text)
            or (
                any(_START.search(line) and not line.lstrip().startswith("#") for line in lines)
                and not any(" INFO " in line or "non-default args" in line for line in lines)
            )
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The flags of the first such command."""
        return described(source.string(), source.name)


def described(text: str, where: str) -> Description:
    """What a command line says."""
    words, image = _words(text, where)
    arguments, unread = _arguments(words, where)
    settings = settings_of(arguments, where).model_copy(update={"engine": "vllm"})
    if image:
        settings = settings.model_copy(update={"engine_version": image})
    notes = [f"flags that are not read: {', '.join(sorted(unread))}"] if unread else []
    if arguments.get("max_model_len") in ("auto", "-1"):
        notes.append("--max-model-len auto is the longest that fits the pool: the model's is taken")
    return Description(settings, notes=tuple(notes))


def _is_manifest(text: str) -> bool:
    """Whether it lists the words of a command that is vLLM's."""
    if not _MANIFEST.search(text):
        return False
    words = listed_words(text)
    return any(word.startswith("--") for word in words) and (
        "vllm/vllm-openai" in text or _SERVES.search(" ".join(words)) is not None
    )


def _words(text: str, where: str) -> tuple[list[str], str | None]:
    """The words behind the command, and the version that its image names."""
    if _is_manifest(text):
        image = _VERSIONED_IMAGE.search(text)
        listed = " ".join(shlex.quote(word) for word in listed_words(text))
        serves = _SERVES.search(listed)
        rest = listed[serves.end() :] if serves else listed
        return shlex.split(rest), image and image[1]
    text = re.sub(r"\\\r?\n", " ", text)
    line = next(
        line
        for line in text.splitlines()
        if _START.search(line) and not line.lstrip().startswith("#")
    )
    start = _START.search(line)
    assert start is not None
    image = _VERSIONED_IMAGE.search(line)
    try:
        words = shlex.split(line[start.end() :], comments=True)
    except ValueError as fault:
        raise InputError(f"not a command line: {fault}", where=where) from None
    stop = next((at for at, word in enumerate(words) if word in _OPERATORS), len(words))
    return words[:stop], image and image[1]


def _arguments(words: list[str], where: str) -> tuple[dict[str, Any], set[str]]:
    """Known arguments by name, and the names of the others."""
    arguments: dict[str, Any] = {}
    unread: set[str] = set()
    at = 0
    is_model = True
    while at < len(words):
        word, at = words[at], at + 1
        if not word.startswith("-"):
            if is_model and "model" not in arguments:
                arguments["model"] = word
            is_model = True  # behind the value of a flag that is not read
            continue
        is_model = False
        flag, equals, value = word.partition("=")
        name = SHORT.get(flag, flag.lstrip("-").replace("-", "_"))
        off = name.startswith("no_") and name[3:] in SWITCHES
        name = name[3:] if off else name
        if name not in KNOWN:
            unread.add(flag)
            is_model = bool(equals) or _BARE.match(name) is not None
            continue
        is_model = True  # what follows its value is a positional argument
        follows = at < len(words) and not words[at].startswith("--")
        if off:
            value = "false"
        elif not equals and name in SWITCHES:
            value = "true"
            if follows and words[at].lower() in ("true", "false"):
                value, at = words[at], at + 1
        elif not equals:
            if not follows:
                raise InputError("a flag without its value", where=where, value=flag)
            value, at = words[at], at + 1
        if _VARIABLE.match(value):
            raise InputError(
                "a shell variable, whose value is not here",
                where=f"{where}: {flag}",
                value=value,
                remedy="write its value into the command line",
            )
        arguments[name] = value
    return arguments, unread
