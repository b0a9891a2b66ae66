"""Small random streams for SGLang's schedulers, a cell for each setting that runs, and the digest
of the rows of each: what a rebuilt tree, allocator or scheduler must give again, to the last bit.

    PYTHONPATH=tests python -m support.sglang_matrix     record the digests again
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from evidence.schedule.engines import parse_case
from evidence.schedule.rows import Row

FILE = Path(__file__).parents[1] / "evidence" / "schedule" / "sglang_matrix.json"
REQUESTS = 24
COST = {"a": 8000, "b": 40, "c": 60}
COPIES = {"layers": 4, "w_a": 500, "w_b": 4, "l_a": 100, "l_b": 2}
STORAGE = {"q_a": 300, "q_b": 2, "g_a": 800, "g_b": 60, "s_a": 800, "s_b": 60}
TRANSFERS = {"handshake": 400, "notice": 100, "x_a": 500, "x_b": 3, "notify": 50}
# (tokens of the pool, page, chunk): tight ones, in which requests are retracted, too.
POOLS = ((450, 1, 96), (592, 16, -1))
LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "windows": {"kind": "swa", "window": 63, "swa_eviction_interval": 16},
    "states": {"kind": "mamba", "max_mamba_cache_size": 24, "mamba_strategy": "extra_buffer"},
    "few states": {
        "kind": "mamba",
        "max_mamba_cache_size": 14,
        "mamba_strategy": "extra_buffer",
        "mamba_track_interval": 64,
        "mamba_max_states_per_path": 1,
    },
}
HOSTS: dict[str, dict[str, Any]] = {
    "write_through": {"ratio": 2.0},
    "write_through_selective": {"ratio": 1.2},
    "write_back": {"ratio": 0.8},
}
PREFETCHES = ("best_effort", "wait_complete", "timeout")


def _requests(draw: Random, reach: int) -> list[dict[str, Any]]:
    """Bursts of chats and of prompts with beginnings in common, some asking for more than they put
    out; `reach` tokens are what most hold.
    """
    found: list[dict[str, Any]] = []
    now, turns = 0, [(("sys", 40),) for _ in range(6)]
    for index in range(REQUESTS):
        now += 0 if draw.random() < 0.5 else draw.randint(1, 30_000)
        chat = draw.randrange(len(turns))
        own = draw.randint(3, reach)
        out = draw.randint(1, reach)
        prompt = (*turns[chat], (f"p:{index}", own))
        if sum(tokens for _, tokens in prompt) > 2 * reach:
            prompt = (("sys", 40), (f"p:{index}", own))
        turns[chat] = prompt
        asked = out if draw.random() < 0.6 else out + draw.randint(1, reach)
        request = {"id": f"r{index}", "arrival": now, "prompt": prompt, "out": out}
        found.append({**request, "max_tokens": asked})
    return found


def _engine(draw: Random, pool: tuple[int, int, int], **more: Any) -> dict[str, Any]:
    tokens, page, chunk = pool
    return {
        "max_total_tokens": tokens,
        "page_size": page,
        "max_running_requests": 8,
        "chunked_prefill_size": chunk,
        "schedule_conservativeness": draw.choice((0.05, 0.3)),
        "context_length": 4096,
        **more,
    }


def _one_engine() -> Iterator[tuple[str, dict[str, Any]]]:
    """Cells of one engine without host memory."""
    for (name, layers), pool, policy, overlap in product(
        LAYERS.items(), POOLS, ("fcfs", "lpm"), (False, True)
    ):
        label = f"{name}, pages of {pool[1]}, {policy}{', overlap' if overlap else ''}"
        draw = Random(label)
        engine = _engine(draw, pool, schedule_policy=policy, overlap=overlap, **layers)
        engine["mixed_chunk"] = pool[2] > 0 and policy == "lpm"
        yield label, {"engine": engine, "cost": COST, "requests": _requests(draw, 90)}
    for name, more in (
        ("plain, no tree", {"radix_cache": False}),
        ("windows, no tree", {**LAYERS["windows"], "radix_cache": False}),
        ("states, no buffers", {**LAYERS["states"], "mamba_strategy": "no_buffer"}),
        ("states, lazily", {**LAYERS["states"], "mamba_strategy": "extra_buffer_lazy"}),
    ):
        draw = Random(name)
        engine = _engine(draw, POOLS[0], overlap=name == "states, lazily", **more)
        yield name, {"engine": engine, "cost": COST, "requests": _requests(draw, 90)}


def _with_host_memory() -> Iterator[tuple[str, dict[str, Any]]]:
    """Cells of a hierarchical cache, with and without a storage."""
    for (policy, host), pool, prefetch in product(HOSTS.items(), POOLS, (None, *PREFETCHES)):
        label = f"{policy}, pages of {pool[1]}, {prefetch or 'no storage'}"
        draw = Random(label)
        hicache = {"write_policy": policy, **host}
        if prefetch is not None:
            hicache["ratio"] = 0.5
            hicache |= {"storage": True, "prefetch_policy": prefetch, "prefetch_threshold": 8}
            hicache |= {"prefetch_timeout_base": 0.02, "prefetch_timeout_per_ki_token": 0.02}
        engine = _engine(
            draw,
            pool,
            overlap=draw.random() < 0.5,
            schedule_policy=draw.choice(("fcfs", "lpm")),
        )
        cost = {**COST, **COPIES, **STORAGE}
        yield (
            label,
            {"engine": engine, "hicache": hicache, "cost": cost, "requests": _requests(draw, 90)},
        )


def _two_engines() -> Iterator[tuple[str, dict[str, Any]]]:
    """Cells of a prefill and a decode engine."""
    for pool, tree, overlap in product(POOLS, (False, True), (False, True)):
        label = f"two engines, pages of {pool[1]}{', tree' if tree else ''}"
        label += ", overlap" if overlap else ""
        draw = Random(label)
        engine = _engine(draw, pool, overlap=overlap, schedule_policy=draw.choice(("fcfs", "lpm")))
        del engine["max_total_tokens"], engine["max_running_requests"]
        yield (
            label,
            {
                "engine": engine,
                "prefill": {"max_total_tokens": pool[0], "max_running_requests": 6},
                "decode": {"max_total_tokens": pool[0] // 16 * 13, "max_running_requests": 6},
                "pd": {"num_reserved_decode_tokens": 16, "decode_radix_cache": tree},
                "cost": {**COST, **COPIES, **TRANSFERS},
                "requests": _requests(draw, 60),
            },
        )


CELLS: Mapping[str, dict[str, Any]] = {
    **dict(_one_engine()),
    **dict(_with_host_memory()),
    **dict(_two_engines()),
}


def rows(label: str) -> list[Row]:
    """The rows of a cell."""
    return parse_case({"name": label, **CELLS[label]}, label).simulated([])


def digest(found: list[Row]) -> str:
    """The rows in a few letters."""
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded() -> dict[str, str]:
    """The digests on file."""
    found: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    found = {label: digest(rows(label)) for label in CELLS}
    FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
