"""Split of a row's model over GPUs, corrected for wrong labels.

Two labels of AISimulate's accuracy set count GPUs twice, where experts are split by whole experts
over the GPUs of one tensor parallel group. InferenceX lists `tp: 4, ep: 4` for four GPUs (configs
of SemiAnalysisAI/InferenceX at 66c28d9). The table has it as tp 16 with experts 4 x 4. Or it has tp
4 with 4 copies of the attention and experts over 16. The same measurement is in the table under
either label and under the right one, equal to the last digit.
"""

from typing import NamedTuple

from evidence.points.rows import Point


class Split(NamedTuple):
    """tensor_parallel: GPUs that share an attention layer. copies: of the attention layers, each
    with requests of its own. whole_experts: experts are dealt out whole, over all GPUs. relabelled:
    the labels said otherwise.
    """

    tensor_parallel: int
    copies: int
    whole_experts: bool
    relabelled: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the server."""
        return self.tensor_parallel * self.copies

    def __str__(self) -> str:
        copies = f" x {self.copies} copies" if self.copies > 1 else ""
        return f"TP {self.tensor_parallel}{copies}{', EP' if self.whole_experts else ''}"


def named_split(row: Point) -> str:
    """The split in words: of a disaggregated row that of each kind of server, and how many."""
    if row.prefill is None or row.decode is None:
        return str(split_of(row))
    return f"{row.prefill} + {row.decode}"


def split_of(row: Point) -> Split:
    """The actual split of a row."""
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
