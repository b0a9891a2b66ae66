"""A scenario made ready to run for real: decoder, store and scheduler, or why it cannot run."""

from dataclasses import dataclass

import torch

from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.shape import Shape
from kvsim.backend.simulated.shape import check_weights, llama_shape
from kvsim.backend.simulated.sizes import likely_steps
from kvsim.backend.simulated.steps import StepMaker
from kvsim.backend.simulated.stores import WORDS, build_store, store_kind
from kvsim.backend.step import TokenSpan
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.products import check_products
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Allocator
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.simulation import Simulation

WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Ready:
    """requests: those to serve. runner: warmed up, its store empty. store: what it is, in words."""

    requests: tuple[Request, ...]
    scheduler: Scheduler
    runner: DecoderRunner
    maker: StepMaker
    store: str


def choose_allocator(simulation: Simulation, label: str | None) -> tuple[AllocatorOptions, str]:
    """The scenario's allocator of this label (None: the only one) and its label."""
    labels = simulation.labels
    if label is None and len(labels) > 1:
        remedy = f"give one of: {', '.join(labels)}"
        what = "which of the scenario's allocators?"
        raise InputError(what, where="--allocator", remedy=remedy)
    return simulation.chosen(label)


def make_ready(
    simulation: Simulation,
    options: AllocatorOptions,
    device: str,
    limit: int | None = None,
    *,
    attention: AttentionKind | None = None,
    graphs: bool | None = None,
) -> Ready:
    """Build what runs `simulation` under one allocator on "cpu" or "cuda".

    limit: number of requests to serve, the first ones; None: all. attention, graphs: by default the
    device's own; graphs are of the steps that a simulated run has. One torch thread from here on on
    a CPU. InputError for what the backend cannot do.
    """
    requests = simulation.stream.requests[:limit]
    check_weights(simulation.model, "model")
    shape = llama_shape(simulation.model, "model")
    check_products(shape, device, "model")
    kind = store_kind(options)
    _check(simulation, shape, requests)
    if device == "cpu":
        torch.set_num_threads(1)
    scheduler = simulation.replica_spec(options).build()
    allocator = scheduler.allocator
    try:
        store = build_store(kind, allocator, shape, device)
        runner = DecoderRunner(Decoder(shape, device=device), store, attention)
        if device_of(device).captures if graphs is None else graphs:
            steps = likely_steps(simulation, options, shape)
            runner.with_graphs(simulation.max_model_len, steps)
        _warm_up(runner, allocator)
    except RuntimeError as error:  # also what torch raises where memory is short
        raise InputError(
            "the device does not run the model on this pool", where=device, value=error
        ) from None
    return Ready(requests, scheduler, runner, StepMaker(shape.vocab, kind), WORDS[kind])


def _check(simulation: Simulation, shape: Shape, requests: tuple[Request, ...]) -> None:
    if simulation.scenario.tier:
        raise InputError(
            "requests are served from the device's memory alone",
            where="tier",
            value=len(simulation.scenario.tier),
            remedy="leave [[tier]] out; kvsim calibrate tier measures copies to host memory",
        )
    if simulation.stream.max_concurrency is not None:
        raise InputError(
            "requests are served at their own times",
            where="workload.max_concurrency",
            value=simulation.stream.max_concurrency,
            remedy="leave it out, or give arrivals of kind closed-loop",
        )
    token_bytes = simulation.layout.bytes_per_token
    if token_bytes != shape.kv_bytes_per_token:
        raise InputError(
            "the backend keeps K and V in the model's own dtype, on one device",
            where="model",
            value=f"{token_bytes} bytes a token",
            limit=f"{shape.kv_bytes_per_token} bytes",
            remedy="leave kv_cache_dtype and tensor_parallel_size out",
        )
    for request in requests:
        if request.n > 1:
            raise InputError(
                "a recording holds one output a request",
                where=f"request {request.id}",
                value=f"{request.n} samples",
            )


def _warm_up(runner: DecoderRunner, allocator: Allocator) -> None:
    """Two steps on unowned memory, so that code loaded or compiled on first use is ready."""
    # In blocks of any size, even of one token.
    tokens = min(WARM_UP_TOKENS, allocator.capacity_bytes // allocator.token_bytes - 1)
    first = TokenSpan("warm-up", [0] * tokens, 0, range(tokens + 1), 0, tokens + 1)
    chunk = first._replace(blocks=range(1, tokens + 2))  # block 0 is padding in a captured step
    runner.warm([chunk])
    runner.warm([chunk._replace(tokens=[0], start=tokens)])
    runner.store.release("warm-up")
