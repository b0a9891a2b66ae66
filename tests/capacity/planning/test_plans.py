"""Plans against those that vLLM 0.33.0 made of the same config.json and flags, key by key."""

import json
from math import lcm
from pathlib import Path

import pytest

from kvsim.capacity.planning import Serving, Speculation, plan_cache
from kvsim.capacity.start_up import start_up
from kvsim.model import Model
from kvsim.vllm.sizes import Sizes
from kvsim.vllm.versions import vllm_version

PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))


def caches(config, serve):
    dtype = serve.get("mamba_ssm_cache_dtype")
    model = Model.from_hf(config | ({"mamba_ssm_dtype": dtype} if dtype else {}))
    return model.kv_caches(serve.get("kv_cache_dtype", "auto"))


def speculation(serve):
    table = serve.get("speculative_config")
    if table is None:
        return None
    ahead = not table.get("disable_lookahead_block_hashes", False)
    return Speculation(table["method"], table["num_speculative_tokens"], ahead)


def plan_of(case):
    serve, model = case["serve"], case["model"]
    serving = Serving(
        max_model_len=serve["max_model_len"],
        max_num_batched_tokens=serve["max_num_batched_tokens"],
        block_size=serve.get("block_size"),
        enable_prefix_caching=serve.get("enable_prefix_caching", True),
        batches_in_flight=2 if serve.get("async_scheduling", True) else 1,
        exports_states=case.get("gdn_prefill") == "flashinfer",
        speculation=speculation(serve),
    )
    own = caches(model, serve)
    table = serve.get("speculative_config", {})
    if table.get("method") == "mtp":
        drafter = [cache for cache in own if cache.kind == "full"][:1]
    else:
        drafter = caches(table["model"], serve) if "model" in table else []
    return plan_cache(own, serving, drafter)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_cache_plans_equal_recorded_ones(path):
    case = json.loads(path.read_text())
    plan, want = plan_of(case), case["plan"]
    found = start_up(plan, want["num_gpu_blocks"], vllm_version("0.33.0").sizing)
    assert plan.block_size == want["block_size"]
    assert plan.bytes_per_block == want["bytes_per_block"]
    caching = plan.serving.enable_prefix_caching
    sizes = Sizes.of(plan.groups, case["serve"].get("prefix_match_unit"), caching=caching)
    units = (sizes.whole, sizes.match, sizes.aligned, sizes.inner)
    if not caching:  # then blocks of states, which are as long as a sequence, count too
        units = (*[lcm(*sizes.blocks)] * 3, False)
    keys = ("scheduler_block_size", "hash_block_size", "hit_alignment", "partial_hits")
    assert units == tuple(want[key] for key in keys)
    assert ("align" if plan.caches_states else "none") == want["mamba_cache_mode"]
    assert plan.serving.max_in_flight_tokens == want["max_in_flight_tokens"]
    assert found.kv_cache_size_tokens == want["kv_cache_size_tokens"]
    assert found.max_concurrency == want["max_concurrency"]
    drafts = plan.serving.speculation
    for key in ("lookahead_slots", "prefill_lookahead", "hash_lookahead", "draft_input_slots"):
        assert (getattr(drafts, key) if drafts else 0) == want[key], key
    assert (drafts.drops_last_block if drafts else False) == want["drop_last_block"]
    assert len(plan.groups) == len(want["groups"])
    for group, like in zip(plan.groups, want["groups"], strict=True):
        pages = like["page_bytes"] if isinstance(like["page_bytes"], list) else [like["page_bytes"]]
        assert (group.kind, group.layers, group.block_size) == (
            like["kind"],
            like["layers"],
            like["block_size"],
        )
        assert list(group.page_bytes) == pages
        assert group.window_tokens == like.get("window_tokens")
        assert group.state_bytes == group.layers * like.get("state_bytes", 0)
        assert group.draft_layers == like["draft_layers"]
        if group.kind == "sliding":
            longest = plan.serving.max_model_len
            assert plan.admission_cap(group, longest) == like["admission_cap"]


def test_layers_and_padding_fill_every_block_page():
    """Each page of a block of each group belongs to a layer or is padding."""
    for path in PLANS:
        plan = plan_of(json.loads(path.read_text()))
        if plan.packed or len(plan.groups) == 1:
            continue
        pages = plan.groups[0].page_bytes
        assert len(pages) == 1
        dealt = plan.bytes_per_block // pages[0] * len(plan.groups)
        real = sum(group.layers for group in plan.groups)
        assert sum(padding for padding, _ in plan.padding) == dealt - real, path.stem
