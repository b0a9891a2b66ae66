"""A user's tables, and fitted rooflines for the kernels that they lack."""

from collections.abc import Sequence

from kvsim.step_time.kernels.roofs import RoofTables
from kvsim.step_time.kernels.tables import KernelFamily, KernelLookup, KernelTables


class FilledTables(KernelLookup):
    """Measured curves of `own` where it has the kind and dtype, else curves of `roofs`; `source`
    names the kinds that came from `roofs`.
    """

    def __init__(self, own: KernelTables, roofs: RoofTables) -> None:
        super().__init__(own.name, own.source, own.measured)
        self._own, self._roofs = own, roofs
        self._filled: list[str] = []

    def family(self, kind: str, dtypes: Sequence[str] = ("",)) -> KernelFamily | None:
        """See `KernelLookup`."""
        found = self._own.family(kind, dtypes)
        if found is None:
            found = self._roofs.family(kind, dtypes)
            if found is not None and kind not in self._filled:
                self._filled.append(kind)
                filled = ", ".join(self._filled)
                self.source = f"{self._own.source}; {filled} by fitted rooflines"
        return found
