"""The measured kernels of a model's layers, of which a step is composed."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvsim.device import Device, named_device
from kvsim.model import Model
from kvsim.step_time.kernels.roofs import RoofTables
from kvsim.step_time.kernels.tables import KernelFamily, KernelLine, KernelLookup
from kvsim.step_time.kernels.work import Roofs, bits_of

Cost = Callable[[float], float]


class LayerKernels:
    """Kernels of some layers, each with how many layers run it.

    tokens: by the step's tokens. states: by decoding sequences. decode: of attention, curves over
    the context by batch. prefill: of attention and recurrence, curves over tokens by batch, and
    whether they count from the sequence's first token on.
    """

    def __init__(self) -> None:
        self.tokens: list[tuple[float, Cost]] = []
        self.states: list[tuple[float, Cost]] = []
        self.decode: list[tuple[float, dict[int, KernelLine]]] = []
        self.prefill: list[tuple[float, dict[int, KernelLine], bool]] = []

    def add(self, more: "LayerKernels") -> None:
        """Take the kernels of other layers in."""
        self.tokens += more.tokens
        self.states += more.states
        self.decode += more.decode
        self.prefill += more.prefill


class ModelSplit(NamedTuple):
    """The split of a model. tp: of attention; dp: its copies; ep: groups of whole experts."""

    tp: int
    dp: int
    ep: int

    @property
    def expert_tp(self) -> int:
        """GPUs that share one expert."""
        return self.tp * self.dp // self.ep


class Kernels:
    """The tables of one device, asked for kernels of one model."""

    def __init__(
        self, tables: KernelLookup, device: Device, model: Model, split: ModelSplit
    ) -> None:
        self.tables = tables
        self.device = device
        self.model = model
        self.split = split

    def gemm(self, n: int, k: int, dtypes: tuple[str, ...]) -> Cost:
        """A matrix product of n outputs and k inputs, by tokens."""
        tables = self.tables
        family = tables.required("gemm", dtypes)
        found = next(dtype for dtype in dtypes if tables.family("gemm", (dtype,)) is family)
        line = family.between((n, k), Roofs(self.device, bits_of(found)).gemm)
        if bits_of(found) <= bits_of(dtypes[0]):
            return line.at
        # Weights of fewer bits, computed as the measured ones: by what fitted rooflines differ.
        roofs = RoofTables(self.device, "")
        wanted, had = (
            roofs.required("gemm", (dtype,)).between((n, k), Roofs(self.device, 16).gemm)
            for dtype in (dtypes[0], found)
        )
        return lambda tokens: line.at(tokens) * wanted.at(tokens) / had.at(tokens)

    def reduction(self, gpus: int) -> Cost:
        """An all-reduce over so many GPUs, by 16-bit elements. Over another link than the measured
        one it takes NCCL's latency and the link's rate.
        """
        found = []
        for kind, dtype in (("all_reduce", ""), ("nccl", "all_reduce")):
            family = self.tables.family(kind, (dtype,))
            if family is not None:
                found.append(family)
        share = 2 * (gpus - 1) / gpus
        if self.tables.measured and self._relinked():
            return self._wire(gpus, share, found[-1:])
        for family in found:
            if (gpus,) in family.lines:
                return family.lines[gpus,].at
        return self._wire(gpus, share, found)

    def _relinked(self) -> bool:
        """Whether the device was given another link than the measured one."""
        return self.device.peer_bytes_per_s != named_device(self.device.name).peer_bytes_per_s

    def collective(self, name: str, gpus: int) -> Cost:
        """An all_gather, reduce_scatter or alltoall over so many GPUs, by all 16-bit elements."""
        family = self.tables.family("nccl", (name,))
        if family is not None and (gpus,) in family.lines:
            return family.lines[gpus,].at
        return self._wire(gpus, (gpus - 1) / gpus, [] if family is None else [family])

    def _wire(self, gpus: int, share: float, measured: list[KernelFamily]) -> Cost:
        """By the link's bandwidth, with the measured latency of so many GPUs, or of the most."""
        latency = 20.0
        if measured:
            lines = measured[0].lines
            near = (gpus,) if (gpus,) in lines else max(lines)
            latency = lines[near].at(1) * max(1.0, gpus / near[0])
        rate = share * 2 / self.device.peer_bytes_per_s * 1e6
        return lambda elements: latency + elements * rate


def added(costs: Iterable[tuple[float, Cost]]) -> Cost:
    """The sum of costs, each so many times."""
    listed = list(costs)
    return lambda x: sum(count * cost(x) for count, cost in listed)
