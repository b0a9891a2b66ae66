"""Random scenarios over the whole option space, drawn from the option classes themselves: a new
option, allocator or arrival process is tried without a line here.

What a scenario must keep, whatever it asks for: every request leaves, the ledger's classes sum to
one, moments and gaps and queues agree, steps at once and one by one give the same bits, and what
was resolved runs again to the same.
"""

import json
import tomllib
from collections.abc import Iterable
from random import Random
from typing import Any

from kvsim.engine.schedulers import SCHEDULERS
from kvsim.memory import ALLOCATORS
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import to_toml
from kvsim.results.result import Run
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time import STEP_TIMES
from kvsim.workload import WORKLOADS
from support.fuzzing.drawing import drawn
from support.outcomes import check_books, check_tokens

MODELS = ("opt-125m", "opt-1.3b", "qwen2.5-0.5b", "gemma-3-1b", "llama-3.2-1b")
SEVERAL_KINDS = ("gemma-3-1b", "gemma-4-e2b", "gpt-oss-20b", "granite-4.0-h-tiny", "qwen3.5-4b")
DEVICES = ("a100-40gb", "h100", "rtx-4090", "l4")
KEPT = {"kind", "allocator", "scheduler", "workload", "memory", "model", "device", "tokens"}


def scenario(random: Random) -> dict[str, Any]:
    """The tables of a scenario, small enough to run in a moment; many are refused for good."""
    kinds = [kind for kind in WORKLOADS if kind != "trace"]
    table: dict[str, Any] = {
        "seed": random.randrange(1000),
        "model": {"name": random.choice(MODELS), "max_model_len": random.choice((64, 300, 1024))},
        "device": {"name": random.choice(DEVICES)},
        "memory": random.choice(
            (
                {"kv_cache_tokens": random.choice((128, 400, 1100, 6000))},
                {"num_gpu_blocks": random.choice((8, 40, 300))},
                {"kv_cache_bytes": random.choice((1, 7, 40)) << 20},
            )
        ),
        "allocator": [drawn(random, ALLOCATORS) for _ in range(random.choice((1, 1, 2)))],
        "scheduler": drawn(random, SCHEDULERS),
        "step_time": drawn(random, STEP_TIMES, ("linear", "roofline")),
        "workload": drawn(random, WORKLOADS, kinds),
    }
    if random.random() < 0.4:
        _more(random, table)
    _mended(random, table)
    if random.random() < 0.8:
        _accepted(table)
    for index, allocator in enumerate(table["allocator"]):
        allocator["label"] = f"{allocator['kind']} {index}"
    return table


def _more(random: Random, table: dict[str, Any]) -> None:
    """What is seldom: layers of several kinds, drafts, a scheduler for one allocator."""
    table["model"]["name"] = random.choice(SEVERAL_KINDS if random.random() < 0.5 else MODELS)
    if random.random() < 0.5:
        tokens = random.choice((1, 2, 5))
        method = random.choice(("eagle", "eagle3", "mtp", "ngram", "draft_model"))
        drafts: dict[str, Any] = {"method": method, "num_speculative_tokens": tokens}
        drafts |= random.choice(
            (
                {"acceptance_rate": random.choice((0.0, 0.7, 1.0))},
                {"synthetic_acceptance_length": random.choice((1.0, 1.5, tokens + 1))},
                {"acceptance_pattern": [random.randrange(tokens + 1) for _ in range(3)]},
            )
        )
        if method == "draft_model":
            drafts["model"] = random.choice(MODELS)
        elif method != "ngram" and random.random() < 0.3:
            drafts["disable_lookahead_block_hashes"] = True
        table["speculative_config"] = drafts
        table["allocator"] = [drawn(random, ALLOCATORS, ("paged",)) for _ in table["allocator"]]
        table["scheduler"] = drawn(random, SCHEDULERS, ("continuous",))
    elif random.random() < 0.5:
        random.choice(table["allocator"])["scheduler"] = drawn(random, SCHEDULERS)
    if random.random() < 0.3:
        table["model"]["kv_cache_dtype"] = random.choice(("fp8", "int4", "fp32", "nvfp4"))
    if random.random() < 0.3:
        table["model"]["tensor_parallel_size"] = 2
    if random.random() < 0.2:
        table["window"] = {"from_s": random.choice((0.0, 0.3, 5.0)), "to_s": 20.0}


def _mended(random: Random, table: dict[str, Any]) -> None:
    """What would be refused at once, whatever the rest says, is drawn as it has to be."""
    scheduler, step_time, workload = (table[key] for key in ("scheduler", "step_time", "workload"))
    if scheduler["kind"] == "llama-server":
        table["allocator"] = [drawn(random, ALLOCATORS, ("cells",)) for _ in table["allocator"]]
    if {"swap_space_gib", "swap_latency_us"} & scheduler.keys():
        scheduler["preemption_mode"] = "swap"
    if step_time["kind"] == "linear":
        step_time.setdefault("base_us", 4000.0)
    if scheduler["kind"] in ("sglang", "llama-server"):
        for name in ("preemption_mode", "swap_space_gib", "swap_latency_us", "victim"):
            scheduler.pop(name, None)
    expands = ("uncached", "beams")
    if workload["kind"] in expands:
        inner = [kind for kind in WORKLOADS if kind not in ("trace", *expands)]
        for name in ("priorities", "max_tokens", "adapters", "n"):
            workload.pop(name, None)
        workload["of"] = drawn(random, WORKLOADS, inner)
        workload = workload["of"]
        workload.pop("n", None)
    _served(table, workload)
    for name in ("prompt", "output"):
        workload.setdefault(name, {"kind": "uniform", "max_tokens": random.choice((20, 200))})
    if any(each["kind"] == "concatenation" for each in table["allocator"]):
        # Every token moves every layer: a few requests are as much work as thousands.
        workload |= {key: 3 for key in ("num_requests", "num_sessions") if key in workload}
        workload["n"] = 1
    if workload["kind"] == "synthetic" and "redraw_over" in workload:
        workload.pop("clip_to", None)


def _served(table: dict[str, Any], workload: dict[str, Any]) -> None:
    """Images and adapters are asked for where the engines serve them."""
    schedulers = [table["scheduler"], *(each.get("scheduler") for each in table["allocator"])]
    kinds = {each["kind"] for each in schedulers if each is not None}
    if kinds == {"continuous"} and "speculative_config" not in table:
        if "adapters" in workload:
            for each in filter(None, schedulers):
                each.setdefault("max_loras", 2)
    else:
        for name in ("items", "adapters"):
            workload.pop(name, None)


def _accepted(table: dict[str, Any]) -> None:
    """Take out what a scenario is refused for, a key at a time, where that may help."""
    for _ in range(6):
        try:
            Simulation(Scenario.from_table(table))
        except InputError as error:
            named = {(error.where or "").rpartition(".")[2], error.what.partition(" ")[0]}
            if not _without(table, named - KEPT):
                return
        else:
            return


def _without(table: dict[str, Any], names: set[str]) -> bool:
    """Remove keys of these names wherever they are; whether there were any."""
    found = [name for name in names if name in table]
    for name in found:
        del table[name]
    inner = [each for value in table.values() for each in _tables(value)]
    return any([bool(found), *(_without(each, names) for each in inner)])


def _tables(value: Any) -> list[dict[str, Any]]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, dict)]


def check(table: dict[str, Any]) -> bool:
    """Whether the scenario runs, and everything it must keep if it does; InputError is no fault."""
    try:
        simulation = Simulation(Scenario.from_table(table))
        result = simulation.result()
    except InputError as error:
        if "\n" in str(error):
            raise AssertionError("more than one line") from error
        return False
    check_books(result)
    for run in result.runs:
        counts = run.summary["requests"]
        assert counts["finished"] + counts["rejected"] == counts["submitted"], counts
        for mean in ("time_mean", "step_mean"):
            total = sum(run.summary["memory"][mean].values())
            assert abs(total - 1) < 1e-9, (mean, total)
    singles = Simulation(Scenario.from_table({**table, "max_steps": 1}))
    _equal(result.runs, check_tokens(singles), "steps at once, and one by one with each token seen")
    resolved = tomllib.loads(to_toml(json.loads(json.dumps(result.scenario))))
    again = Simulation(Scenario.from_table({**resolved, "max_steps": 1})).result()
    _equal(result.runs, again.runs, "the resolved scenario, one by one")
    return True


def _equal(runs: Iterable[Run], others: Iterable[Run], what: str) -> None:
    for run, same in zip(runs, others, strict=True):
        for key, value in run.summary.items():
            if key != "wall_s":
                assert value == same.summary[key], (what, run.label, key)
