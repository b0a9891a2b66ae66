"""Does decoding with a KV cache equal decoding without, what does it save, and when is it exact?

Every figure is measured on this machine, with a small transformer of random weights.
"""

from typing import TYPE_CHECKING, NamedTuple

from kvsim.commands.torch_device import check_device

if TYPE_CHECKING:
    from evidence.prove.random_steps import StoreKind
    from evidence.prove.replay import Equality as Found
    from kvsim.backend.devices.device import AttentionKind
    from kvsim.backend.shape import Shape
    from kvsim.backend.stores.store import TensorStore

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCAB = 3, 64, 8, 2, 16, 96, 50
CPU_DTYPES = ("float64", "float32", "bfloat16")
CUDA_DTYPES = ("float32", "bfloat16", "float16")
CONTEXT = 48
EXACT = 1e-12


class EqualityCheck(NamedTuple):
    """Logits of random schedules with a KV cache, compared with recomputation. With an allocator
    that is broken on purpose they must differ.
    """

    store: str
    dtype: str
    allocator: str  # "sound" or "broken": it hands memory out twice
    rows: int
    error: float
    tolerance: float
    ok: bool


class WorkCheck(NamedTuple):
    """FLOP and bytes of one decode step of a caching scheme: as counted, and by formula."""

    scheme: str
    context: int
    flop: int
    flop_formula: int
    kept_bytes: int
    kept_bytes_formula: int
    error: float
    ok: bool


class ExactnessCheck(NamedTuple):
    """Whether caching under an attention rule gives recomputed logits, and whether it should."""

    rule: str
    kept_of_kv: float  # cached bytes over those of one K and one V
    expected: str  # "equal" or "different"
    error: float
    ok: bool


class CacheReport(NamedTuple):
    """All checks. `ok`: whether every one passes.

    equality: random schedules on small test allocators. replayed: steps of those captured as a CUDA
    graph, compared with launching them one by one. simulated: kvsim's allocators, driven by kvsim's
    engine.
    """

    device: str
    equality: tuple[EqualityCheck, ...]
    replayed: tuple[EqualityCheck, ...]
    simulated: tuple[EqualityCheck, ...]
    work: tuple[WorkCheck, ...]
    exactness: tuple[ExactnessCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passes."""
        return all(check.ok for part in self[1:] for check in part)


def validate_cache(seed: int = 0, schedules: int = 3, device: str = "cpu") -> CacheReport:
    """Run all checks. device: "cpu", or "cuda" for the GPU's kernels. InputError without torch.

    schedules: number of random schedules of 60 steps for each KV store and dtype.
    """
    check_device(device)
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # operations this small only wait for each other's threads
    try:
        return CacheReport(
            device,
            tuple(_equality(seed, schedules, device)),
            tuple(_replayed(seed, schedules, device)),
            tuple(_simulated(seed, device)),
            tuple(_work(seed)),
            tuple(_exactness(seed)),
        )
    finally:
        torch.set_num_threads(threads)


def small_shape(dtype: str) -> "Shape":
    """The shape of the small transformer that the checks run."""
    from kvsim.backend.shape import Shape

    return Shape(LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCAB, dtype)


def store_of(kind: "StoreKind", shape: "Shape", device: str) -> "TensorStore":
    """An empty KV store for the schedules of `evidence.prove.random_steps`."""
    from evidence.prove.random_steps import BLOCK_SIZE, SLOTS
    from kvsim.backend.stores.buffers import BufferStore
    from kvsim.backend.stores.contiguous import ContiguousStore
    from kvsim.backend.stores.paged import PagedStore

    if kind == "paged":
        return PagedStore(shape, SLOTS // BLOCK_SIZE + 1, BLOCK_SIZE, device)
    if kind == "buffers":
        return BufferStore(shape, device)
    return ContiguousStore(shape, SLOTS, device)


def _equality(seed: int, schedules: int, device: str) -> list[EqualityCheck]:
    from evidence.prove.random_steps import STORE_KINDS, random_steps
    from evidence.prove.replay import replay
    from kvsim.backend.transformer.decoder import Decoder

    checks = []
    for dtype in CPU_DTYPES if device == "cpu" else CUDA_DTYPES:
        decoder = Decoder(small_shape(dtype), device=device)
        for kind in STORE_KINDS:
            for broken in (False, True) if kind != "buffers" else (False,):
                found = [
                    replay(
                        random_steps(kind, seed + at, vocab=VOCAB, broken=broken),
                        decoder,
                        store_of(kind, decoder.shape, device),
                    )
                    for at in range(schedules)
                ]
                checks.append(_worst(kind, dtype, found, broken=broken))
    return checks


def _worst(store: str, dtype: str, found: list["Found"], *, broken: bool = False) -> EqualityCheck:
    """The comparison with the largest error on one store; a NaN error counts as largest."""
    worst = max(found, key=lambda one: (one.error != one.error, one.error))
    return EqualityCheck(
        store=store,
        dtype=dtype,
        allocator="broken" if broken else "sound",
        rows=sum(one.rows for one in found),
        error=worst.error,
        tolerance=worst.tolerance,
        ok=worst.ok != broken,
    )


def _replayed(seed: int, schedules: int, device: str) -> list[EqualityCheck]:
    from evidence.prove.captured import compare_captured
    from evidence.prove.random_steps import STORE_KINDS, random_steps
    from kvsim.backend.devices import device_of
    from kvsim.backend.transformer.decoder import Decoder

    attention: AttentionKind = "triton" if device_of(device).captures else "reference"
    checks = []
    for dtype in CUDA_DTYPES if device != "cpu" else ("float32",):
        decoder = Decoder(small_shape(dtype), device=device)
        for kind in STORE_KINDS:
            stores = [store_of(kind, decoder.shape, device) for _ in range(2 * schedules)]
            if not stores[0].captures:
                continue
            found = [
                compare_captured(
                    list(random_steps(kind, seed + at, vocab=VOCAB)),
                    decoder,
                    stores[2 * at],
                    stores[2 * at + 1],
                    attention,
                )
                for at in range(schedules)
            ]
            checks.append(_worst(kind, dtype, found))
    return checks


def _simulated(seed: int, device: str) -> list[EqualityCheck]:
    from evidence.cache.simulated import replay_run, runs
    from kvsim.backend.transformer.decoder import Decoder

    dtype = "float64" if device == "cpu" else "float32"
    decoder = Decoder(small_shape(dtype), device=device)
    checks = []
    for name, simulation in runs(seed):
        found, _ = replay_run(simulation, decoder, device)
        checks.append(_worst(name, dtype, [found]))
    return checks


def _tokens(seed: int, count: int) -> list[int]:
    from numpy.random import PCG64, Generator

    return [int(token) for token in Generator(PCG64(seed)).integers(0, VOCAB, count)]


def _work(seed: int) -> list[WorkCheck]:
    from evidence.prove.schemes import SCHEMES, decode
    from kvsim.backend.transformer.decoder import Decoder

    decoder = Decoder(small_shape("float64"))
    tokens = _tokens(seed, CONTEXT)
    exact, _ = decode(decoder, tokens, SCHEMES[0])
    checks = []
    for scheme in SCHEMES:
        logits, measured = decode(decoder, tokens, scheme)
        formula = scheme.cost(decoder.shape, CONTEXT)
        error = float((logits - exact).abs().max() / exact.abs().max())
        checks.append(
            WorkCheck(
                scheme=scheme.name,
                context=CONTEXT,
                flop=measured.flop,
                flop_formula=formula.flop,
                kept_bytes=measured.kept_bytes,
                kept_bytes_formula=formula.kept_bytes,
                error=error,
                ok=measured == formula and error <= EXACT,
            )
        )
    return checks


def _exactness(seed: int) -> list[ExactnessCheck]:
    from evidence.prove import exactness as rules
    from kvsim.backend.transformer.decoder import Decoder

    causal, rerope = rules.Causal(), rules.ReRope()
    cases = [
        ("causal decoder, RoPE", causal, causal, "equal"),
        ("bidirectional encoder", rules.Bidirectional(), rules.Bidirectional(), "different"),
        ("ReRoPE, keys cached un-rotated", rerope, rerope, "equal"),
        ("ReRoPE, keys cached rotated", rerope, rules.ReRopeRotated(), "different"),
        ("ReRoPE, both rotations cached", rerope, rules.ReRopeBoth(), "equal"),
    ]
    decoder = Decoder(small_shape("float64"))
    checks = []
    for name, truth, rule, expected in cases:
        error = rules.largest_error(decoder, _tokens(seed, CONTEXT // 2), truth, rule)
        kept = (rule.kept_width + 1) / 2
        checks.append(
            ExactnessCheck(name, kept, expected, error, (error <= EXACT) == (expected == "equal"))
        )
    return checks
