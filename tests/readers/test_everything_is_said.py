"""Every part of a file is used or noted as unused: an unknown key, line, flag, column or metric in
the sample of every reader.
"""

import csv
import gzip
import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.import_samples import PROMPT, SAMPLES, SECRET
from support.launch_forms import FORMS

from kvsim.readers.detect import read_sources, readers
from kvsim.readers.parsing.ledger import SourceLedger, left_lines
from kvsim.readers.reader import Source

UNKNOWN = "zz_unheard_of"
FLAG = "--zz-unheard-of"
Put = Callable[[str], str]


def in_json(text: str) -> str:
    """A key at the top of the document, or of each of its lines."""
    try:
        documents = [json.loads(text)]
    except ValueError:
        documents = [json.loads(line) for line in text.splitlines()]
    return "\n".join(json.dumps(_with_key(each)) for each in documents)


def _with_key(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_key(each) for each in value]
    return value | {UNKNOWN: 1} if isinstance(value, dict) else value


def in_table(text: str) -> str:
    head, *rows = csv.reader(StringIO(text))
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows([[*head, UNKNOWN], *([*r, "1"] for r in rows)])
    return out.getvalue()


def in_log(text: str) -> str:
    return f"{text}Some {UNKNOWN} became 7 here\n"


def in_printed(text: str) -> str:
    return f"{text}Some {UNKNOWN}:   7\n"


def in_metrics(text: str) -> str:
    prefix = next(name for name in ("vllm", "sglang", "llamacpp") if f"{name}:" in text)
    return f"{text}{prefix}:{UNKNOWN} 7\n"


def in_command(text: str) -> str:
    return f"{text.rstrip()} {FLAG}=3\n"


def in_yaml(text: str) -> str:
    return f"{text}{UNKNOWN}: 3\n"


def in_environment(text: str) -> str:
    return text.replace("ExecStart", f'Environment="OLLAMA_{UNKNOWN.upper()}=1"\nExecStart')


# What is put into the sample of each reader.
PUT: dict[str, Put] = {
    **dict.fromkeys(("vllm-command", "sglang-command", "trtllm-command", "llama-command"),
                    in_command),
    **dict.fromkeys(("vllm-config", "trtllm-config"), in_yaml),
    **dict.fromkeys(("vllm-log", "sglang-log", "trtllm-log", "llama-log"), in_log),
    **dict.fromkeys(("vllm-metrics", "sglang-metrics", "llama-metrics"), in_metrics),
    **dict.fromkeys(("requests-table", "blis-tracev2"), in_table),
    **dict.fromkeys(
        ("vllm-bench", "llmperf", "aiperf", "guidellm", "inference-perf", "dynamo-trace",
         "lmcache-lookup", "otel-spans", "settings-json", "llama-answer", "sglang-answer",
         "trace"), in_json),
    "ollama": in_environment,
    "bench-text": in_printed,
}  # fmt: skip
# Every field of these has its place, and one more is refused by name.
STRICT = ("kv-events", "ticks-table")
# This goes whole to the model that it describes.
WHOLE = ("model-config",)


@pytest.mark.parametrize("form", PUT)
def test_unknown_entries_of_any_source_are_noted_as_unread(form: str, tmp_path: Path) -> None:
    path = SAMPLES[form](tmp_path)
    (before,) = read_sources([str(path)], [])
    path.write_text(PUT[form](path.read_text()))
    (read,) = read_sources([str(path)], [])
    assert read.format == form
    assert read.description.settings == before.description.settings
    new = " ".join(set(read.description.notes) - set(before.description.notes)).lower()
    assert "unheard" in new
    assert "not" in new
    assert SECRET not in str(read.description.notes)
    assert PROMPT not in str(read.description.notes)


def flagged(text: str) -> str:
    """The text of a server with one more flag, as its form writes flags."""
    if "  vllmConfig:" in text:
        return text.replace("vllmConfig:\n", f"vllmConfig:\n      {UNKNOWN}: 3\n")
    if text.startswith("model:"):
        return f"{text}{UNKNOWN}: 3\n"
    if "\n  - --" in text:
        return text.replace("  - --", f"  - {FLAG}=3\n  - --", 1)
    separator = "=3, " if "--max-model-len=512," in text else " 3 "
    return re.sub(r"(?=--(?:max-model-len|max_model_len))", f"{FLAG}{separator}", text, count=1)


@pytest.mark.parametrize("form", FORMS)
def test_unread_flags_anywhere_in_a_file_are_noted(form: str, tmp_path: Path) -> None:
    """Of the server itself, and of a command or a key that no server of the file is started by."""
    text = flagged(FORMS[form])
    assert text != FORMS[form]
    is_yaml = re.match(r"[\w-]+:", FORMS[form]) is not None
    other = "VLLM_ZZ=3 other --zz-elsewhere 3"
    more = f"{text}zz:\n  other: {other}\n" if is_yaml else f"{text}\n{other}\n"
    path = tmp_path / "source.txt"
    path.write_text(more)
    (read,) = read_sources([str(path)], [])
    said = " ".join(read.description.notes)
    assert "unheard" in said
    if not text.startswith("model:"):
        assert "--zz-elsewhere" in said
        assert "VLLM_ZZ" in said
    assert (read.description.settings.max_model_len, read.description.settings.max_num_seqs) in (
        (512, 7),
        (512, None),
    )


PRINTED = {
    "vllm-log": ("'max_num_seqs': 64", "'zz_unheard_of': {'a': 3}, 'zz_off': None"),
    "sglang-log": ("page_size=1", "zz_unheard_of=[3], zz_off=False, hicache_zz=3"),
}


@pytest.mark.parametrize("form", PRINTED)
def test_unread_printed_arguments_are_noted_unless_off(form: str, tmp_path: Path) -> None:
    after, added = PRINTED[form]
    path = SAMPLES[form](tmp_path)
    path.write_text(path.read_text().replace(after, f"{after}, {added}"))
    (read,) = read_sources([str(path)], [])
    said = " ".join(read.description.notes)
    assert "zz_unheard_of" in said
    assert "zz_off" not in said
    assert "hicache_zz" not in said


def test_log_lines_of_tracebacks_are_counted(tmp_path: Path) -> None:
    path = SAMPLES["vllm-log"](tmp_path)
    path.write_text(f"{path.read_text()}Traceback (most recent call last):\n    at once\n# no\n")
    (read,) = read_sources([str(path)], [])
    assert any(note.endswith("tracebacks, not read: 3") for note in read.description.notes)


def test_unread_blocks_and_flags_of_a_page_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "Use --zz-unheard-of.\n```\nvllm serve facebook/opt-125m\n```\n```\nnothing\n```\n"
        "```\npkill -f 'vllm serve'\n```\n"
    )
    notes: list[str] = []
    read_sources([str(path)], notes)
    said = " ".join(notes)
    assert "page.md: blocks that kvsim does not read: 2" in said
    assert "no command of the file starts it" in said
    assert FLAG in said


def test_vllm_and_sglang_servers_of_one_manifest_are_both_read(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(
        "services:\n  a:\n    image: vllm/vllm-openai:v0.19.1\n    command: --model m "
        f"--max-num-seqs 3 {FLAG}\n  b:\n    image: lmsysorg/sglang:v0.5.2\n    command: python3 "
        "-m sglang.launch_server --model-path m --max-running-requests 4 --zz-second\n"
    )
    one, two = read_sources([str(path)], [])
    assert (one.format, two.format) == ("vllm-command", "sglang-command")
    assert (one.description.settings.max_num_seqs, two.description.settings.max_num_seqs) == (3, 4)
    assert "--zz-second" not in " ".join(one.description.notes)
    assert "--zz-second" in " ".join(two.description.notes)


def test_every_reader_is_tested_with_an_unknown_entry() -> None:
    assert {*PUT, *STRICT, *WHOLE} == set(readers(Source))
    assert {*PUT, *STRICT, *WHOLE} == set(SAMPLES)


def test_unread_entries_that_may_change_memory_are_noted_first() -> None:
    ledger = SourceLedger()
    ledger.there("keys", "", ["read", "max_num_seqs", "colour"])
    ledger.there("keys", "inner", ["kvCacheDtype", "name"])
    ledger.take("keys", "", "read")
    assert ledger.notes(None) == [
        "keys that may change memory or time, and are not read: max_num_seqs, inner.kvCacheDtype",
        "keys that are not read: colour, inner.name",
    ]


def test_unread_log_lines_are_grouped_and_lose_prompts_and_keys() -> None:
    lines = [
        *(f"INFO 06-10 20:35:0{at} [a.py:{at}] The new cache took {at} GiB" for at in range(3)),
        f"INFO 06-10 20:36:00 [b.py:1] prompt: '{PROMPT}', key sk-{SECRET} at /home/me/x",
    ]
    memory, rest = left_lines(lines, (), ())
    assert memory == (
        "lines that may change memory or time, and are not read: `The new cache took # GiB` (3)"
    )
    assert PROMPT not in rest
    assert SECRET not in rest
    assert "/home" not in rest


def test_equal_log_lines_are_matched_once(tmp_path: Path) -> None:
    path = SAMPLES["vllm-log"](tmp_path)
    with gzip.open(tmp_path / "long.log.gz", "wt") as file:
        file.write(path.read_text() + "INFO 06-10 20:35:00 [a.py:1] nothing 1\n" * 50_000)
    (read,) = read_sources([str(tmp_path / "long.log.gz")], [])
    assert any("`nothing #` (50,000)" in note for note in read.description.notes)
