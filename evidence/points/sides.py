"""The columns of a row with separate prefill and decode servers."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, PositiveInt

from kvsim.plumbing.options import Options


def _one_if_none(value: object) -> object:
    """1 instead of 0, as which a number that does not apply is written."""
    return 1 if value in ("0", 0) else value


OneOrMore = Annotated[PositiveInt, BeforeValidator(_one_if_none)]


class PointSide(Options):
    """The servers of one kind, under the names of the columns after `prefill_` or `decode_`.

    num_workers: number of servers. batch_size: requests in flight per server.
    """

    num_workers: OneOrMore = 1
    batch_size: OneOrMore = 1
    tp_size: OneOrMore = 1
    pp_size: OneOrMore = 1
    attention_dp_size: OneOrMore = 1
    moe_tp_size: OneOrMore = 1
    moe_ep_size: OneOrMore = 1

    @property
    def counted(self) -> bool:
        """Whether the row gives the number of servers."""
        return "num_workers" in self.model_fields_set

    def __str__(self) -> str:
        copies = f" x {self.attention_dp_size}" if self.attention_dp_size > 1 else ""
        return f"{self.num_workers} of TP {self.tp_size}{copies}"


def side_of(cells: Mapping[str, str], side: str, where: str) -> PointSide | None:
    """The servers of one kind in a row; None if the row has none."""
    names = {name: f"{side}_{name}" for name in PointSide.model_fields}
    table = {name: cell for name, key in names.items() if (cell := cells.get(key, "").strip())}
    if not table:
        return None
    return PointSide.parse(table, f"{where}: {side}")
