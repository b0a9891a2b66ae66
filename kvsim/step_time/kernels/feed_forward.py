"""Kernels of feed-forward parts: matrix products, the router, experts split over GPUs."""

from kvsim.model import Dense, Experts
from kvsim.step_time.kernels.dtypes import expert_dtypes, linear_dtypes, plain_dtypes
from kvsim.step_time.kernels.parts import Cost, Kernels
from kvsim.step_time.kernels.work import Roofs, bits_of

SAME_EXPERTS = ((0, 1, 2, 3), (2, 3), ())  # of the measured shapes: the model's own, ..., any


def dense_costs(kernels: Kernels, part: Dense, count: int) -> list[tuple[float, Cost]]:
    """Costs of the dense feed-forward parts of `count` layers on one GPU."""
    return _network(kernels, part.intermediate_size, part.gated, count)


def expert_costs(kernels: Kernels, part: Experts, count: int) -> list[tuple[float, Cost]]:
    """Costs of `count` layers on one GPU: the router, shared experts, and the routed ones with the
    tokens of all copies of the attention.
    """
    hidden, split = kernels.model.hidden_size, kernels.split
    plain = plain_dtypes(kernels.model)
    width = part.latent_size or hidden
    costs = [(float(count), kernels.gemm(part.num_experts, hidden, plain))]
    if part.latent_size:
        down, up = ((width, hidden), (hidden, width))
        costs += [
            (count, kernels.gemm(*sizes, linear_dtypes(kernels.model))) for sizes in (down, up)
        ]
    if part.shared_intermediate_size:
        costs += _network(kernels, part.shared_intermediate_size, part.gated, count)
    dtypes = expert_dtypes(kernels.model)
    sizes = (part.intermediate_size, part.experts_per_token, part.num_experts)
    shape = (width, *sizes, split.expert_tp, split.ep)
    line = None
    # The kernels of the first dtype run where there are any, be it for another model's shape.
    for dtype in dtypes:
        for equal_at in SAME_EXPERTS:
            family = kernels.tables.family("moe", (dtype,))
            if line is None and family is not None:
                work = Roofs(kernels.device, bits_of(dtype)).experts
                line = family.scaled(shape, work, equal_at)
                if line is not None:
                    line = kernels.sound("moe", dtype, shape, line)
    if line is None:
        kernels.tables.required("moe", dtypes)
        raise AssertionError("a family has a shape")
    measured, copies = line, split.dp
    costs.append((count, lambda tokens: measured.at(tokens * copies)))
    return costs


def _network(kernels: Kernels, inner: int, gated: bool, count: int) -> list[tuple[float, Cost]]:
    tp, hidden, dtypes = kernels.split.tp, kernels.model.hidden_size, linear_dtypes(kernels.model)
    width = inner // tp
    return [
        (count, kernels.gemm((1 + gated) * width, hidden, dtypes)),
        (count, kernels.gemm(hidden, width, dtypes)),
    ]
