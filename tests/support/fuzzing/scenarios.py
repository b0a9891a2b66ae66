"""Random scenarios over the whole option space, drawn from the tables of a scenario, the option
classes and the registries themselves: a new table, key, or kind of anything is tried without a line
here.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from kvsim.engine.schedulers import SCHEDULERS
from kvsim.fleet.disaggregation import SIDES
from kvsim.memory import ALLOCATORS
from kvsim.model import ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time import STEP_TIMES
from kvsim.workload import WORKLOADS
from support.fuzzing.drawing import DEVICES, LEASES_S, MODELS, SEVERAL_KINDS, Drawing

KEPT = {"kind", "allocator", "scheduler", "workload", "memory", "model", "device", "tokens"}
NEEDED = ("seed", "model", "device", "memory", "allocator", "scheduler", "step_time", "workload")
EXPANDS = ("uncached", "beams")
MENDINGS = 12  # refused keys and tables that are taken out of one scenario
ROOMY = {"kv_cache_tokens": 6000}
LONG = 7  # letters of a key's name that no other word of an error has
ONE_BY_ONE = "max_steps"  # what a check sets, and no scenario draws


def scenario(random: Random) -> dict[str, Any]:
    """The tables of a scenario, small enough to run in a moment; many are refused for good."""
    draws = Drawing(random, INSIDE)
    table: dict[str, Any] = {name: NEEDED_TABLES[name](draws, random) for name in NEEDED}
    others = [name for name in Scenario.model_fields if name not in (*NEEDED, ONE_BY_ONE)]
    if random.random() < 0.75:
        for name in random.sample(others, random.choice((1, 1, 2, 3))):
            value = draws.value(name, Scenario.model_fields[name], 1)
            if value is not None:
                table[name] = value
    _mended(random, draws, table)
    if random.random() < 0.9:
        _accepted(table)
    for index, allocator in enumerate(table["allocator"]):
        allocator["label"] = f"{allocator['kind']} {index}"
    return table


def _model(draws: Drawing, random: Random) -> dict[str, Any]:
    """A small one; seldom one with layers of several kinds, and seldom any of the keys."""
    names = SEVERAL_KINDS if random.random() < 0.2 else MODELS
    found = {"name": random.choice(names), "max_model_len": random.choice((64, 300, 1024))}
    if random.random() < 0.4:
        found = draws.table(ModelOptions, 1, share=0.08) | found
    if random.random() < 0.15:
        found["kv_cache_dtype"] = random.choice(("fp8", "int4", "fp32", "nvfp4"))
    return found


def _device(draws: Drawing, random: Random) -> dict[str, Any]:
    return {"name": random.choice(DEVICES)}


def _memory(draws: Drawing, random: Random) -> dict[str, Any]:
    return random.choice(
        (
            {"kv_cache_tokens": random.choice((128, 400, 1100, 6000))},
            {"num_gpu_blocks": random.choice((8, 40, 300))},
            {"kv_cache_bytes": random.choice((1, 7, 40)) << 20},
        )
    )


def _allocators(draws: Drawing, random: Random) -> list[dict[str, Any]]:
    found = [draws.kind(ALLOCATORS) for _ in range(random.choice((1, 1, 2)))]
    if random.random() < 0.2:
        random.choice(found)["scheduler"] = draws.kind(SCHEDULERS)
    return found


def _step_time(draws: Drawing, random: Random) -> dict[str, Any]:
    kind = random.choice(("linear", "linear", "linear", "roofline", "roofline", "auto"))
    return {"kind": kind} if kind == "auto" else draws.kind(STEP_TIMES, (kind,))


def _workload(draws: Drawing, random: Random) -> dict[str, Any]:
    return draws.kind(WORKLOADS, [kind for kind in WORKLOADS if kind != "trace"])


NEEDED_TABLES: dict[str, Callable[[Drawing, Random], Any]] = {
    "seed": lambda _, random: random.randrange(1000),
    "model": _model,
    "device": _device,
    "memory": _memory,
    "allocator": _allocators,
    "scheduler": lambda draws, _: draws.kind(SCHEDULERS),
    "step_time": _step_time,
    "workload": _workload,
}
# Tables of a scenario that another table holds as plain keys.
INSIDE: dict[str, Callable[[Drawing], Any]] = {
    "model": lambda draws: draws.table(ModelOptions, 1, share=0.08),
    "device": lambda draws: _device(draws, draws.random),
    "memory": lambda draws: _memory(draws, draws.random),
    "allocator": lambda draws: draws.kind(ALLOCATORS, None, 1),
    "scheduler": lambda draws: draws.kind(SCHEDULERS, None, 1),
    "step_time": lambda draws: _step_time(draws, draws.random),
    "tier": lambda draws: draws.value("tier", Scenario.model_fields["tier"], 1)[0],
}


def _mended(random: Random, draws: Drawing, table: dict[str, Any]) -> None:
    """What would be refused at once, whatever the rest says, is drawn as it has to be."""
    scheduler, step_time, workload = (table[key] for key in ("scheduler", "step_time", "workload"))
    config = table.get("speculative_config")
    if config is not None:
        _one_way(random, config)
    apart = table.get("disaggregation")
    if config is not None or "tier" in table or (apart is not None and random.random() < 0.5):
        _under_vllm(draws, table)
    elif apart is not None:
        table["allocator"] = [draws.kind(ALLOCATORS, ("radix",))]
        table["scheduler"] = draws.kind(SCHEDULERS, ("sglang",))
    if apart is not None:
        for side in filter(None, map(apart.get, SIDES)):
            for name in side.keys() & {"allocator", "scheduler"}:
                side.pop(name)
        if "kv_load_failure_policy" in apart:
            apart.setdefault("failed_reads", 0.3)
        if table["scheduler"]["kind"] == "continuous":  # 30 s unless given
            apart.setdefault("kv_lease_duration", random.choice(LEASES_S))
    scheduler = table["scheduler"]
    if scheduler["kind"] == "llama-server":
        table["allocator"] = [draws.kind(ALLOCATORS, ("cells",)) for _ in table["allocator"]]
    if {"swap_space_gib", "swap_latency_us"} & scheduler.keys():
        scheduler["preemption_mode"] = "swap"
    if step_time["kind"] == "linear":
        step_time.setdefault("base_us", 4000.0)
    if scheduler["kind"] in ("sglang", "llama-server"):
        for name in ("preemption_mode", "swap_space_gib", "swap_latency_us", "victim"):
            scheduler.pop(name, None)
    if workload["kind"] in EXPANDS:
        inner = [kind for kind in WORKLOADS if kind not in ("trace", *EXPANDS)]
        for name in ("priorities", "max_tokens", "adapters", "n"):
            workload.pop(name, None)
        workload["of"] = draws.kind(WORKLOADS, inner)
        # each token of each output, or of each beam, is a request
        workload["of"]["output"] = {"kind": "uniform", "max_tokens": 12}
        workload = workload["of"]
        workload.pop("n", None)
    _served(table, workload)
    if "turns" in workload:  # each is a request
        workload["turns"] = {"kind": "uniform", "max_tokens": random.choice((1, 3, 6))}
    for name in ("prompt", "output"):
        workload.setdefault(name, {"kind": "uniform", "max_tokens": random.choice((20, 200))})
    if any(each["kind"] == "concatenation" for each in table["allocator"]):
        # Every token moves every layer: a few requests are as much work as thousands.
        workload |= {key: 3 for key in ("num_requests", "num_sessions") if key in workload}
        workload["n"] = 1
    if workload["kind"] == "synthetic" and "redraw_over" in workload:
        workload.pop("clip_to", None)


def _under_vllm(draws: Drawing, table: dict[str, Any]) -> None:
    table["allocator"] = [draws.kind(ALLOCATORS, ("paged",)) for _ in table["allocator"]]
    table["scheduler"] = draws.kind(SCHEDULERS, ("continuous",))
    for name in ("sharing", "host_cache_gib"):
        for each in table["allocator"]:
            each.pop(name, None)
    for name in ("preemption_mode", "swap_space_gib", "swap_latency_us"):
        table["scheduler"].pop(name, None)
    tiers = table.get("tier")
    if tiers and tiers[0]["kind"] == "file-system":
        tiers.insert(0, {"kind": "vllm-offloading", "kv_offloading_size": 0.05})


def _one_way(random: Random, drafts: dict[str, Any]) -> None:
    """Drafts are accepted in one way, and a drafter is named where one is needed."""
    tokens = drafts["num_speculative_tokens"]
    for key in [key for key in drafts if "accept" in key]:
        del drafts[key]
    drafts |= random.choice(
        (
            {"acceptance_rate": random.choice((0.0, 0.7, 1.0))},
            {"synthetic_acceptance_length": random.choice((1.0, 1.5, tokens + 1))},
            {"acceptance_pattern": [random.randrange(tokens + 1) for _ in range(3)]},
        )
    )
    if drafts["method"] in ("draft_model", "dflash"):
        drafts["model"] = random.choice(MODELS)
    elif drafts["method"] in ("mtp", "ngram"):
        drafts.pop("model", None)


def _served(table: dict[str, Any], workload: dict[str, Any]) -> None:
    """Remove images and adapters from scenarios of engines that do not serve them."""
    schedulers = [table["scheduler"], *(each.get("scheduler") for each in table["allocator"])]
    kinds = {each["kind"] for each in schedulers if each is not None}
    apart = {"speculative_config", "disaggregation"} & table.keys()
    if kinds == {"continuous"} and not apart:
        if "adapters" in workload:
            for each in filter(None, schedulers):
                each.setdefault("max_loras", 2)
    else:
        for name in ("items", "adapters"):
            workload.pop(name, None)


def _accepted(table: dict[str, Any]) -> None:
    """Take out what a scenario is refused for, the keys that are named at a time, where that may
    help; else the table that they are in.
    """
    for _ in range(MENDINGS):
        try:
            Simulation(Scenario.from_table(table))
        except InputError as error:
            if not _taken_out(table, error):
                return
        else:
            return


def _taken_out(table: dict[str, Any], error: InputError) -> bool:
    """Whether something was taken out that may be why: the keys that are named, else one of several
    tables of a kind, else the table.
    """
    where = (error.where or "").split(".")
    words = {word.strip(",;:()") for word in f"{error.what} {error.remedy}".split()}
    named = {where[-1], *(word for word in words if "_" in word or len(word) >= LONG)}
    if _without(table, named - KEPT - Scenario.model_fields.keys()):
        return True
    if table["memory"] != ROOMY and ("memory" in where or "pool" in words):
        table["memory"] = dict(ROOMY)
        return True
    several = table.get(where[0])
    if isinstance(several, list) and len(several) > 1 and where[1:2] and where[1].isdigit():
        del several[int(where[1])]
        return True
    return where[0] not in NEEDED and table.pop(where[0], None) is not None


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
