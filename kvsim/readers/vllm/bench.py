"""`vllm bench serve --save-result`: one JSON object per run; --save-detailed includes its requests.

A detailed result of an older version lacks start_times. If its closed loop was always full, they
follow from the latencies: each request starts when the first one in flight ends.
"""

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description
from kvsim.readers.parsing.harmless_keys import REPORTS
from kvsim.readers.reader import CLIENT, MEASURED, SERVER, STREAM, Sniffed, Source
from kvsim.readers.vllm.bench_result import described


class VllmBenchResult(Source):
    """The result of one run of vllm bench serve."""

    rank = CLIENT
    what = "a result of `vllm bench serve`"
    gives = SERVER | STREAM | MEASURED
    harmless = REPORTS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise a result by keys that every version writes; with `--append-result` there is one
        run per line.
        """
        first = source.document or source.first_record()
        first = first[0] if isinstance(first, list) else first
        return (
            isinstance(first, dict)
            and {"total_input_tokens", "request_throughput", "num_prompts"} <= first.keys()
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the requests if the file has them, else the means."""
        if not isinstance(source.document, dict):
            raise InputError(
                "several results in one file",
                where=source.name,
                remedy="give one run: cut its line into a file of its own",
            )
        return described(source.fields(), source.name)
