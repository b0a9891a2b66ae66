"""vLLM's `--dataset-name timed_trace`: Mooncake's fields, ids of 16-token blocks by default."""

from pydantic import PositiveInt

from kvsim.workload.traces.line import fits
from kvsim.workload.traces.mooncake_fields import MooncakeFields, looks_like


class TimedTrace(MooncakeFields):
    """hash_block_tokens: tokens per hash id."""

    hash_block_tokens: PositiveInt = 16

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """Recognised by its keys, and by a number of ids that matches blocks of 16 tokens and not
        of 512.
        """
        records = looks_like(lines)
        return bool(records) and fits(records, 16) and not fits(records, 512)
