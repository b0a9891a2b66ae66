"""One run of an experiment of the paper: a system under Poisson arrivals, watched for a while.

OPT-13B on one A100-40GB: 983 blocks of 16 tokens. Steps take SPEED * (22 ms + 0.15 ms a prompt
token + 0.63 us a KV token). The shape comes from the model's weights and bandwidth. SPEED alone is
fitted, so that vLLM batches the paper's 30.42 sequences of ShareGPT at 2 requests/s (figure 13).

Streams. The paper measured one trace, which is not published. In 600 s Orca (Max) serves some 350
requests. A cell of figure 2 differs by up to 1.6 points (standard deviation) from one stream to the
next. Therefore many streams are simulated, of consecutive seeds, none of them selected. The paper's
trace is compared with them as one more draw (`one_draw`).
"""

from collections.abc import Generator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import simpy

from evidence.paper.lengths import Sampler, sharegpt
from evidence.paper.window import WindowRecorder
from kvsim.engine.replica import assemble
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request, Stream
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

SPEED = 1.25
NUM_BLOCKS = 983
BLOCK_TOKENS = 16
POOL_TOKENS = NUM_BLOCKS * BLOCK_TOKENS
WINDOW_S = (300.0, 900.0)
STREAMS = 80
FEW = 4  # of STREAMS, for what hangs little on them, or is reported and not held
EXPERIMENT: dict[str, Any] = {
    "model": {"name": "opt-13b"},
    "device": {"name": "a100-40gb"},
    "memory": {"kv_cache_tokens": POOL_TOKENS},
    "step_time": {
        "kind": "linear",
        "base_us": 22_000 * SPEED,
        "prefill_token_us": 150 * SPEED,
        "context_token_ns": 630 * SPEED,
    },
}


def orca(reserve: str, placement: str = "buddy") -> dict[str, Any]:
    """The scenario of Orca in the paper's artifact; `reserve` says how it estimates the output
    length.
    """
    allocator = {"kind": "max-buffer", "reserve": reserve, "placement": placement}
    return {"scheduler": {"kind": "orca"}, "allocator": [allocator]}


def vllm(block_size: int = BLOCK_TOKENS) -> dict[str, Any]:
    """The scenario of vLLM in the paper's artifact."""
    allocator = {"kind": "paged", "block_size": block_size, "enable_prefix_caching": False}
    return {"scheduler": {"kind": "vllm-v0"}, "allocator": [allocator]}


SYSTEMS: dict[str, dict[str, Any]] = {
    "Orca (Max)": orca("model-max"),
    "Orca (Pow2)": orca("pow2"),
    "Orca (Oracle)": orca("exact"),
    "vLLM": vllm(),
}


@dataclass(frozen=True, slots=True)
class Means:
    """Means over the steps of a time window. shares: of the pool, by ledger class. tokens_per_s:
    output tokens of the requests that finished in the window, per second.
    """

    shares: dict[str, float]
    running: float
    tokens_per_s: float
    preemptions: float

    @property
    def paper_view(self) -> tuple[float, float, float, float]:
        """(token states, reservation, internal, external and others) in percent, the classes of
        figure 2. Buddy rounding and free memory both count as external and others.
        """
        held = [100 * self.shares[name] for name in ("used", "reserved", "overprovisioned")]
        return held[0], held[1], held[2], 100 - sum(held)


@dataclass(frozen=True)
class Setting:
    """Settings that all experiments share.

    seed: seed of the first stream. sharegpt: source of ShareGPT's lengths. streams: number of
    simulated streams, with consecutive seeds.
    """

    seed: int = 0
    sharegpt: Sampler = sharegpt
    streams: int = STREAMS

    @property
    def few(self) -> int:
        """Number of streams for figures that vary little between streams: FEW, or two if `streams`
        is small.
        """
        return FEW if self.streams >= STREAMS // 2 else 2

    def watch(
        self,
        tables: dict[str, Any],
        lengths: Sampler,
        rate_per_s: float,
        streams: int,
        window_s: tuple[float, float] = WINDOW_S,
    ) -> list[Means]:
        """Simulate the tables under each stream, and return the means of the window; the streams
        are the same for every system.
        """
        from_s, until_s = window_s
        return [
            watch(tables, stream(lengths, rate_per_s, until_s, seed), from_s, until_s)
            for seed in range(self.seed, self.seed + streams)
        ]


def stream(lengths: Sampler, rate_per_s: float, duration_s: float, seed: int) -> Stream:
    """Exactly rate_per_s * duration_s requests at independent uniform times, which is a Poisson
    process given its count.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    count = round(rate_per_s * duration_s)
    prompts, outputs = lengths(count, rng)
    arrivals = np.sort(rng.integers(round(duration_s * PS_PER_S), size=count))
    return Stream(
        tuple(
            Request(f"r{index}", arrival_ps, prompt_tokens, output_tokens)
            for index, (arrival_ps, prompt_tokens, output_tokens) in enumerate(
                zip(arrivals.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
            )
        ),
        source={"seed": str(seed)},
    )


def watch(tables: dict[str, Any], requests: Stream, from_s: float, until_s: float) -> Means:
    """Simulate `requests` until the last step that starts by until_s has ended; returns means over
    the steps from from_s on.
    """
    simulation = Simulation(Scenario.from_table({**EXPERIMENT, **tables}), requests)
    spec = simulation.replica_spec(simulation.scenario.allocator[0])
    start_ps, end_ps = round(from_s * PS_PER_S), round(until_s * PS_PER_S)
    recorder = WindowRecorder(spec.capacity_bytes, start_ps, end_ps)
    replica = assemble(spec, simulation.stream, simulation.step_time, recorder=recorder)
    env = replica.env

    def cut_at_edges() -> Generator[simpy.Event, None, None]:
        for edge_ps in (start_ps, end_ps + 1):  # a step that starts at the end still counts
            yield env.timeout(edge_ps - env.now)
            replica.engine.cut()

    env.process(cut_at_edges())
    while not recorder.closed and env.peek() < float("inf"):
        env.step()
    return Means(
        recorder.shares(),
        recorder.running_mean(),
        sum(
            seq.output_tokens
            for seq, finish_ps in zip(recorder.finished, recorder.finish_ps, strict=True)
            if start_ps <= finish_ps <= end_ps
        )
        / (until_s - from_s),
        replica.scheduler.num_preemptions,
    )


def mean_of(runs: list[Means]) -> Means:
    """The mean of several runs with equal weights."""
    return Means(
        {name: fmean(run.shares[name] for run in runs) for name in runs[0].shares},
        fmean(run.running for run in runs),
        fmean(run.tokens_per_s for run in runs),
        sum(run.preemptions for run in runs),
    )
