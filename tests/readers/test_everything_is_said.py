"""Whatever stands in a file is used, or named as not used: an unknown key, line, flag, column or
metric in the sample of every reader.
"""

import csv
import gzip
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.import_samples import PROMPT, SAMPLES, SECRET

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
def test_unknown_keys_lines_and_columns_are_named(form: str, tmp_path: Path) -> None:
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


def test_every_reader_is_in_this_test() -> None:
    assert {*PUT, *STRICT, *WHOLE} == set(readers(Source))
    assert {*PUT, *STRICT, *WHOLE} == set(SAMPLES)


def test_unread_entries_are_noted_in_two_classes() -> None:
    ledger = SourceLedger()
    ledger.there("keys", "", ["read", "max_num_seqs", "colour"])
    ledger.there("keys", "inner", ["kvCacheDtype", "name"])
    ledger.take("keys", "", "read")
    assert ledger.notes(None) == [
        "keys that may change memory or time, and are not read: max_num_seqs, inner.kvCacheDtype",
        "keys that are not read: colour, inner.name",
    ]


def test_lines_of_a_kind_are_one_and_hold_no_text_of_others() -> None:
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
