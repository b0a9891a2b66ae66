"""The table that a benchmark prints at its end: `vllm bench serve`, or SGLang's bench_serving.

Users paste it if they have no result file. Each line corresponds to a key of that file.
"""

import re
from dataclasses import replace
from typing import Any

from kvsim.readers.description import Description
from kvsim.readers.parsing.fields import Fields
from kvsim.readers.parsing.harmless_keys import REPORTS
from kvsim.readers.parsing.ledger import left_lines
from kvsim.readers.pastes import BENCH_TITLE as TITLE
from kvsim.readers.reader import CLIENT, MEASURED, STREAM, Sniffed, Source
from kvsim.readers.vllm.bench_result import described

_LINE = re.compile(r"^[#>|\s]{0,8}([A-Z][\w /.()-]{2,60}):\s{1,60}(\S.{0,60}?)\s*$")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?=$|\s)")
_LATENCY = re.compile(r"(Mean|Median|Std|P\d+(?:\.\d+)?) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)")
_KEYS = {
    "successful requests": "completed",
    "failed requests": "failed",
    "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "request throughput (req/s)": "request_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "total token throughput (tok/s)": "total_token_throughput",
    "total throughput (tok/s)": "total_token_throughput",
    "input token throughput (tok/s)": "input_throughput",
    "peak output token throughput (tok/s)": "max_output_tokens_per_s",
    "peak concurrent requests": "max_concurrent_requests",
    "maximum request concurrency": "max_concurrency",
    "max request concurrency": "max_concurrency",
    "request rate configured (rps)": "request_rate",
    "traffic request rate": "request_rate",
    "burstiness factor": "burstiness",
    "backend": "backend",
    "total generated tokens (retokenized)": "total_output_tokens_mismatch",
    "concurrency": "measured_mismatch",  # SGLang's: what it had in flight on average
}
_HARMLESS = tuple(
    re.compile(pattern)
    for pattern in (
        *(TITLE, r"-{5,}[#\s]*$", r"={5,}", r"\d%\|", r"^[#\s]*$"),
        r"^(?:Starting|Warmup|#?Input|#?Output)",
    )
)


class PrintedBench(Source):
    """One printed table; a file with several tables has several results."""

    rank = CLIENT
    what = "a benchmark's printed result"
    gives = STREAM | MEASURED
    harmless = REPORTS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the table by its title."""
        return source.document is None and not source.is_folder and source.holds(TITLE)

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read means and percentiles, under the keys of the result file."""
        lines = source.string().splitlines()
        values = dict[str, Any](entry for line in lines if (entry := _entry(line)) is not None)
        run = described(Fields(values, source.name, source.ledger), source.name)
        return replace(run, notes=(*run.notes, *left_lines(lines, (_LINE,), _HARMLESS)))


def _entry(line: str) -> tuple[str, Any] | None:
    match = _LINE.match(line)
    if match is None:
        return None
    label, text = match[1].strip(), match[2]
    latency = _LATENCY.fullmatch(label)
    if latency is not None:
        name = "e2el" if latency[2] == "E2E Latency" else latency[2].lower()
        key = f"{latency[1].lower()}_{name}_ms"
    else:
        key = _KEYS.get(label.lower(), re.sub(r"\W+", "_", label.lower()).strip("_"))
    number = _NUMBER.match(text)
    if number is None:
        return key, text if text.startswith("inf") else None if text == "not set" else text
    return key, float(number[0]) if "." in number[0] else int(number[0])
