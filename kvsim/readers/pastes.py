"""Split pasted text into sources: a command above its log, code blocks, a model's config."""

import json
import re

from kvsim.readers.parsing.json_lines import values
from kvsim.readers.parsing.ledger import is_log_line
from kvsim.readers.reader import HEAD_BYTES, Sniffed, sniffed

_FENCE = re.compile(r"[ \t]{0,8}(?:```|~~~)")
_PROMPT = re.compile(r"^\s*(?:[\w@.~:/()\[\] -]{0,80}[$#>%]\s+)?")
_SERVES = re.compile(
    r"\bvllm\s+serve\s|vllm\.entrypoints\.\S+|\bsglang\.launch_server\b|\bsglang\s+serve\s|"
    r"\btrtllm-serve\s|(?<![\w-])llama-server(?:\.exe)?\s|\bdocker\s+run\s"
)
BENCH_TITLE = "Serving Benchmark Result"
_TABLE_END = re.compile(r"^[#>|\s]{0,8}={20,}[ \t]*$", re.MULTILINE)
_FLAG = re.compile(r"\s--?[a-z]")
# A word that may stand before a command on its line: a variable, a program that runs another.
_BEFORE = re.compile(
    r"\w+=\S*|-\S*|\+|\S*python[\d.]*|nohup|exec|env|sudo|time|uv|run|numactl|srun|mpirun|"
    r"setsid|stdbuf|taskset|export|\d+"
)
_FOLDER = re.compile(r"[\"'`]?(?:\S*/)?")
LOGS = ("vllm-log", "sglang-log", "trtllm-log", "llama-log")


def fenced(source: Sniffed) -> list[Sniffed]:
    """The Markdown code blocks of a page; empty without a complete one."""
    if source.is_folder or source.document is not None or b"```" not in source.data[: 1 << 22]:
        return []
    blocks: list[list[str]] = []
    inside = False
    for line in source.string().split("\n"):
        if _FENCE.match(line):
            inside = not inside
            if inside:
                blocks.append([])
        elif inside:
            blocks[-1].append(line)
    if inside:  # no end: no block
        blocks.pop()
    texts = ["\n".join(block) + "\n" for block in blocks]
    return [_part(source, text, f"block {at}") for at, text in enumerate(texts, 1) if text.strip()]


def with_its_command(source: Sniffed) -> tuple[Sniffed, Sniffed | None]:
    """The log without command lines in it, and those command lines as a second source; None if it
    has none.
    """
    lines = source.string().split("\n")
    taken: list[str] = []
    kept: list[str] = []
    goes_on = False
    for line in lines:
        if goes_on or _is_command(line):
            taken.append(_PROMPT.sub("", line, count=1) if not goes_on else line)
            goes_on = line.rstrip().endswith("\\")
        else:
            kept.append(line)
    if not taken:
        return source, None
    rest = _part(source, "\n".join(kept), "")
    return rest, _part(source, "\n".join(taken) + "\n", "its command")


def results_in(source: Sniffed) -> list[Sniffed]:
    """Each of several benchmark results in one file: items of a list, lines, or a report's
    benchmarks.
    """
    document = source.document
    if document is None and (texts := _tables(source.string())):
        if len(texts) == 1:
            return [source]
        return [_part(source, text, f"result {at}") for at, text in enumerate(texts, 1)]
    if isinstance(document, dict) and isinstance(document.get("benchmarks"), list):
        each_alone = [{**document, "benchmarks": [each]} for each in document["benchmarks"]]
    elif isinstance(document, list):
        each_alone = document
    elif isinstance(document, dict):
        return [source]
    else:
        each_alone = [value for _, value in values(source.data, source.name)]
    if len(each_alone) < 2:
        return [source]
    return [
        _part(source, json.dumps(each), f"result {at}") for at, each in enumerate(each_alone, 1)
    ]


def _tables(text: str) -> list[str]:
    """The printed result tables in a text, each with the lines above it."""
    parts = _TABLE_END.split(text)
    return [part for part in parts if BENCH_TITLE in part]


def _is_command(line: str) -> bool:
    if len(line) >= HEAD_BYTES or (found := _SERVES.search(line)) is None:
        return False
    before = _PROMPT.sub("", line[: found.start()], count=1)
    *words, folder = re.split(r"\s+", before)
    return (
        _FOLDER.fullmatch(folder) is not None
        and all(_BEFORE.fullmatch(word) or not word for word in words)
        and not is_log_line(_PROMPT.sub("", line, count=1))
        and ("\\" in line[-2:] or _FLAG.search(line) is not None or line.lstrip().startswith("$"))
        and "args:" not in line
    )


def _part(source: Sniffed, text: str, what: str) -> Sniffed:
    path = source.path.with_name(f"{source.path.name}, {what}") if what else source.path
    return sniffed(path, text.encode())._replace(variables=source.variables)
