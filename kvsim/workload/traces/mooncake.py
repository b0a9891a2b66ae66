"""Mooncake (github.com/kvcache-ai/Mooncake): milliseconds, lengths, ids of 512-token blocks."""

from pydantic import PositiveInt

from kvsim.workload.traces.mooncake_fields import MooncakeFields, looks_like


class Mooncake(MooncakeFields):
    """hash_block_tokens: tokens per hash id."""

    hash_block_tokens: PositiveInt = 512

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """Recognised by its keys, whatever the block size; a wrong block size is then an error that
        names the row.
        """
        return bool(looks_like(lines))
