"""How a row's model is split over GPUs, corrected for wrong labels.

Two labels of AISimulate's accuracy set count GPUs twice, if whole experts are distributed over the
GPUs of one tensor-parallel group. InferenceX lists `tp: 4, ep: 4` for four GPUs (configs of
SemiAnalysisAI/InferenceX at 66c28d9). The table has it as tp 16 with experts 4 x 4, or as tp 4 with
4 attention copies and experts over 16. The same measurement is in the table under each wrong label
and under the right one, equal to the last digit.
"""

from typing import NamedTuple

from evidence.points.rows import Point


class Split(NamedTuple):
    """How a model is split over GPUs.

    tensor_parallel: GPUs that share an attention layer. copies: data-parallel copies of the
    attention layers. whole_experts: whether whole experts are distributed over all GPUs (expert
    parallelism). relabelled: whether the row's labels were corrected.
    """

    tensor_parallel: int
    copies: int
    whole_experts: bool
    relabelled: bool = False

    @property
    def gpus(self) -> int:
        """Number of GPUs of the server."""
        return self.tensor_parallel * self.copies

    def __str__(self) -> str:
        copies = f" x {self.copies} copies" if self.copies > 1 else ""
        return f"TP {self.tensor_parallel}{copies}{', EP' if self.whole_experts else ''}"


def named_split(row: Point) -> str:
    """The split as text; for a disaggregated row, the split and number of each kind of server."""
    if row.prefill is None or row.decode is None:
        return str(split_of(row))
    return f"{row.prefill} + {row.decode}"


def split_of(row: Point) -> Split:
    """The row's split, with wrong labels corrected."""
    tp, copies = row.tp_size, row.attention_dp_size
    parts, whole = row.moe_tp_size, row.moe_ep_size
    if parts == whole > 1 and tp == parts * whole:
        return Split(parts, 1, whole_experts=True, relabelled=True)
    if copies == tp > 1 and whole == tp * copies:
        return Split(tp, 1, whole_experts=True, relabelled=True)
    over = parts * whole
    if copies == 1 and over > tp and over % tp == 0:
        copies = over // tp  # experts are split over the GPUs of all copies
    return Split(tp, copies, whole_experts=whole > 1)
