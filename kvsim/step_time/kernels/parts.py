"""The measured kernels of a model's layers, of which a step is composed."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvsim.device import Device, device_names, named_device
from kvsim.model import Model
from kvsim.step_time.kernels.roofs import RoofTables
from kvsim.step_time.kernels.sound import unsound
from kvsim.step_time.kernels.steady import at_least
from kvsim.step_time.kernels.tables import KernelFamily, KernelLine, KernelLookup, Shape
from kvsim.step_time.kernels.work import Roofs, bits_of

Cost = Callable[[float], float]

# Of a collective over several servers, for each of them. DeepSeek-R1 on 16 H100 (SGLang 0.5.8, two
# servers of 8) with 1 to 4 clients, in the fitting half of AISimulate 0.13's accuracy set: TPOT is
# 9.7 ms above the kernels of one server, in 122 all-reduces.
NODE_US = 42.0
PORT_BYTES_PER_S = 50e9  # of a GPU to the network: 400 Gb/s


class LocalKernels(NamedTuple):
    """Attention of layers with local chunks of `chunk_tokens` tokens: its curves over the tokens of
    one chunk, by batch.
    """

    layers: float
    chunk_tokens: int
    decode: dict[int, KernelLine]
    prefill: dict[int, KernelLine]


class LayerKernels:
    """Kernels of some layers, each with how many layers run it.

    tokens: by the step's tokens. states: by decoding sequences. decode: of attention, curves over
    the context by batch. prefill: of attention and recurrence, curves over tokens by batch, and
    whether they count from the sequence's first token on. local: of layers that see chunks.
    """

    def __init__(self) -> None:
        self.tokens: list[tuple[float, Cost]] = []
        self.states: list[tuple[float, Cost]] = []
        self.decode: list[tuple[float, dict[int, KernelLine]]] = []
        self.prefill: list[tuple[float, dict[int, KernelLine], bool]] = []
        self.local: list[LocalKernels] = []

    def add(self, more: "LayerKernels") -> None:
        """Add the kernels of other layers."""
        self.tokens += more.tokens
        self.states += more.states
        self.decode += more.decode
        self.prefill += more.prefill
        self.local += more.local


class ModelSplit(NamedTuple):
    """Split of a model over GPUs. tp: tensor parallel size of attention; dp: copies of the
    attention; ep: expert parallel size.
    """

    tp: int
    dp: int
    ep: int

    @property
    def expert_tp(self) -> int:
        """GPUs that share one expert."""
        return self.tp * self.dp // self.ep


class Kernels:
    """Lookup of one model's kernels in the tables of one device."""

    def __init__(
        self, tables: KernelLookup, device: Device, model: Model, split: ModelSplit
    ) -> None:
        self.tables = tables
        self.device = device
        self.model = model
        self.split = split

    def gemm(self, n: int, k: int, dtypes: tuple[str, ...]) -> Cost:
        """Times of a matrix product with n outputs and k inputs, by tokens."""
        tables = self.tables
        family = tables.required("gemm", dtypes)
        found = next(dtype for dtype in dtypes if tables.family("gemm", (dtype,)) is family)
        line = family.between((n, k), Roofs(self.device, bits_of(found)).gemm)
        line = self.sound("gemm", found, (n, k), line)
        if bits_of(found) <= bits_of(dtypes[0]):
            return line.at
        # Weights of fewer bits, computed as the measured ones: by what fitted rooflines differ.
        roofs = RoofTables(self.device, "")
        wanted, had = (
            roofs.required("gemm", (dtype,)).between((n, k), Roofs(self.device, 16).gemm)
            for dtype in (dtypes[0], found)
        )
        return lambda tokens: line.at(tokens) * wanted.at(tokens) / had.at(tokens)

    def sound(self, kind: str, dtype: str, shape: Shape, line: KernelLine) -> KernelLine:
        """The measured curve of a shape, with no time below that of its bytes.

        An impossible curve (`unsound`) is replaced by the fitted roofline's, and named in the
        result.
        """
        peak = Roofs(self.device, bits_of(dtype))
        if self.tables.measured:
            family = RoofTables(self.device, "").family(kind, (dtype,))
            expected = None if family is None else family.between(shape, peak.gemm)
            if expected is not None and unsound(line, expected.at):
                self.tables.left_out(f"{kind} in {dtype}")
                line = expected
        return at_least(line, (1e6 * peak.read_seconds(kind, shape, at) for at in line.x))

    def reduction(self, gpus: int) -> Cost:
        """Times of an all-reduce over `gpus` GPUs, by 16-bit elements.

        Over another link than the measured one it takes NCCL's latency and the link's rate.
        """
        found = []
        for kind, dtype in (("all_reduce", ""), ("nccl", "all_reduce")):
            family = self.tables.family(kind, (dtype,))
            if family is not None:
                found.append(family)
        share = 2 * (gpus - 1) / gpus
        if self._nodes(gpus) > 1 or (self.tables.measured and self._relinked()):
            return self._wire(gpus, share, found[-1:])
        for family in found:
            if (gpus,) in family.lines:
                return family.lines[gpus,].at
        return self._wire(gpus, share, found)

    def _relinked(self) -> bool:
        """Whether the link of the device was replaced by another than the measured one.

        False for a user's own device: its kernels are measured with its own link.
        """
        name = self.device.name
        if name not in device_names():
            return False
        return self.device.peer_bytes_per_s != named_device(name).peer_bytes_per_s

    def collective(self, name: str, gpus: int) -> Cost:
        """Times of an all_gather, reduce_scatter or alltoall over `gpus` GPUs, by the 16-bit
        elements of all GPUs together.
        """
        family = self.tables.family("nccl", (name,))
        if family is not None and (gpus,) in family.lines and self._nodes(gpus) == 1:
            return family.lines[gpus,].at
        return self._wire(gpus, (gpus - 1) / gpus, [] if family is None else [family])

    def _nodes(self, gpus: int) -> int:
        """Number of servers that `gpus` GPUs are spread over."""
        return -(-gpus // self.device.gpus_per_node)

    def _wire(self, gpus: int, share: float, measured: list[KernelFamily]) -> Cost:
        """Cost by the link's bandwidth, with the measured latency of `gpus` GPUs, or of the largest
        measured group.

        Over several servers by the ports of each to the network, if these are slower.
        """
        latency, nodes = 20.0, self._nodes(gpus)
        bytes_per_s: float = self.device.peer_bytes_per_s
        if nodes > 1:
            latency = NODE_US * nodes
            bytes_per_s = min(bytes_per_s, PORT_BYTES_PER_S * self.device.gpus_per_node)
        elif measured:
            lines = measured[0].lines
            near = (gpus,) if (gpus,) in lines else max(lines)
            latency = lines[near].at(1) * max(1.0, gpus / near[0])
        rate = share * 2 / bytes_per_s * 1e6
        return lambda elements: latency + elements * rate


def added(costs: Iterable[tuple[float, Cost]]) -> Cost:
    """The sum of costs, each multiplied by its factor."""
    listed = list(costs)
    return lambda x: sum(count * cost(x) for count, cost in listed)
