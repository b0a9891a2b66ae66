"""A schedule recorded from vLLM without a KV connector."""

from collections.abc import Mapping
from typing import Any, ClassVar

from evidence.schedule.vllm.schedule import VllmSchedule


class VllmCase(VllmSchedule):
    """A schedule of a vLLM engine without a connector; cases with one have other kinds."""

    recognised_by: ClassVar[str] = "num_gpu_blocks"

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return super().recognises(table) and not {"offload", "pd"} & table["engine"].keys()
