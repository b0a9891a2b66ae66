"""The pool as SGLang sizes it: by a published run, by its source's arithmetic, refused by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import kvsim
from kvsim.capacity.sglang.fraction import chunk_of, default_fraction
from kvsim.capacity.sglang.pools import divide
from kvsim.capacity.sglang.settings import SglangSettings
from kvsim.capacity.sglang.sizing import (
    SglangPool,
    cached_layout,
    sglang_layout,
    size_sglang,
)
from kvsim.capacity.sglang.start_up import lines
from kvsim.cli import app
from kvsim.device import named_device
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.model import ModelOptions
from kvsim.model.tower import Vision
from kvsim.model.weights import Weights
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import MIB
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


def sized(name: str, device: str, tp: int = 1, **flags: Any) -> SglangPool:
    longest = flags.pop("max_model_len", None)
    table = {"name": name, "tensor_parallel_size": tp, "max_model_len": longest}
    options = ModelOptions.parse(table, "model")
    settings = SglangSettings.parse(flags, "memory")
    return size_sglang(options.build(), named_device(device), options, settings)


def test_deepseek_on_eight_h200_has_the_observed_pool() -> None:
    """DeepSeek-R1 in fp8, TP 8, fraction 0.82: some 509,000 tokens were observed
    (github.com/ai-dynamo/aisimulate/pull/263).
    """
    pool = sized("deepseek-v3", "h200", 8, mem_fraction_static=0.82)
    assert pool.pools.tokens == pytest.approx(509_000, rel=0.02)


def test_sglang_pool_accounts_for_every_byte_of_the_device() -> None:
    pool = sized("llama-3.1-8b", "h100")
    parts = pool.set_up_bytes + pool.weights_bytes + pool.headroom_bytes + pool.budget_bytes
    assert parts == pool.total_bytes
    assert 0 <= pool.budget_bytes - pool.pools.kv_bytes < 131_072
    assert lines(pool)[-1] == (
        f"max_total_num_tokens={pool.pools.tokens}, chunked_prefill_size=8192, "
        "max_prefill_tokens=16384, max_running_requests=2048, context_len=131072"
    )


@pytest.mark.parametrize(
    ("mib", "tp", "flags", "reserved"),
    [
        # chunk 4096, graphs of 48 and 50 of prefills; arg_groups/memory_hook.py
        (24_564, 1, {}, 512 + 6144 + 128 + 96 + 400),
        (24_564, 4, {}, 512 + 6144 + 512 + 320 + 400),
        (81_559, 1, {}, 512 + 12_288 + 128 + 512 + 464),
        (81_559, 1, {"chunked_prefill_size": 512}, 10_240),
        (81_559, 1, {"chunked_prefill_size": -1}, 512 + 24_576 + 128 + 512),
        (81_559, 1, {"max_running_requests": 8}, 512 + 12_288 + 128 + 16 + 464),
        (183_359, 8, {}, 512 + 24_576 + 1024 + 1024 + 592),
    ],
)
def test_default_mem_fraction_static_equals_sglangs_source(
    mib: int, tp: int, flags: dict[str, Any], reserved: float
) -> None:
    settings = SglangSettings.parse(flags, "memory")
    assert default_fraction(settings, mib, tp, latent=False) == round((mib - reserved) / mib, 3)


FULL, WINDOW, STATE = (
    KVGroup("full", 12, 24_576),
    KVGroup("sliding", 12, 20_480, window_tokens=128),
    KVGroup("recurrent", 36, 0, state_bytes=4_000_000),
)


@given(
    budget=st.integers(1 << 30, 1 << 36),
    page=st.sampled_from([1, 16, 64]),
    ratio=st.floats(0.05, 1),
)
def test_window_pool_takes_its_ratio_and_fills_the_budget(
    budget: int, page: int, ratio: float
) -> None:
    settings = SglangSettings(page_size=page, swa_full_tokens_ratio=ratio)
    layout = KVLayout((WINDOW, FULL))
    pools = divide(budget, layout, settings, chunk=8192, max_model_len=32_768)
    assert pools.window_tokens == int(pools.tokens * ratio) // page * page
    assert pools.kv_bytes + pools.window_bytes <= budget
    more = pools.tokens + page
    assert more * 24_576 + ratio * more * 20_480 > budget


@given(budget=st.integers(1 << 30, 1 << 36), share=st.floats(0.05, 4))
def test_state_pool_takes_its_ratio_plus_a_padding_slot(budget: int, share: float) -> None:
    settings = SglangSettings(mamba_full_memory_ratio=share)
    layout = KVLayout((STATE, FULL))
    pools = divide(budget, layout, settings, chunk=8192, max_model_len=32_768)
    assert pools.states is not None
    assert pools.state_bytes == (pools.states + 1) * 4_000_000
    assert pools.state_bytes <= budget * share / (1 + share) < pools.state_bytes + 4_000_000
    assert pools.tokens == (budget - pools.state_bytes) // 24_576
    assert pools.max_running_requests <= pools.states // 5


def test_without_radix_cache_max_running_requests_sizes_windows_and_states() -> None:
    settings = SglangSettings(disable_radix_cache=True, max_running_requests=100, page_size=16)
    pools = divide(
        1 << 34,
        KVLayout((WINDOW, FULL)),
        settings,
        chunk=4096,
        max_model_len=32_768,
    )
    assert pools.window_tokens == 100 * (128 + 128 + 32) + 2 * 4096 + 16
    assert pools.tokens == ((1 << 34) - pools.window_bytes) // 24_576 // 16 * 16
    states = divide(
        1 << 34,
        KVLayout((STATE, FULL)),
        settings,
        chunk=4096,
        max_model_len=32_768,
    )
    assert (states.states, states.max_running_requests) == (100, 100)


@pytest.mark.parametrize(
    ("name", "flags", "words"),
    [
        ("deepseek-v4-flash", {"weights_gib": 40.0}, "compressed caches"),
        ("deepseek-v4-flash", {"mem_fraction_static": 0.8}, "no memory is left for KV"),
        ("llama-3.1-70b", {"mem_fraction_static": 0.9}, "no memory is left for KV"),
        ("gpt-oss-20b", {"swa_full_tokens_ratio": 0.00005}, "holds no request"),
    ],
)
def test_unsupported_sglang_settings_are_refused_by_name(
    name: str, flags: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        sized(name, "h100", **flags)


def test_local_attention_chunks_count_as_sliding_windows() -> None:
    """Llama 4 Scout on 8 GPUs: 12 layers keep all tokens, 36 a window of a chunk. Its tower is not
    loaded, so that mem_fraction_static has the default of a model without one.
    """
    pool = sized("llama-4-scout", "h100", 8)
    cell = 1 * 128 * 2 * 2
    assert pool.pools.kv_bytes == pool.pools.tokens * 12 * cell
    assert pool.pools.window_tokens == int(pool.pools.tokens * 0.8)
    assert pool.pools.window_bytes == pool.pools.window_tokens * 36 * cell
    without = sized("llama-3.1-8b", "h100", 8)
    assert pool.mem_fraction_static == without.mem_fraction_static
    options = ModelOptions(name="llama-4-scout")
    layout = sglang_layout(options.build(), options)
    assert [(each.kind, each.window_tokens) for each in layout.groups] == [
        ("sliding", 8192),
        ("full", None),
    ]


def test_windows_without_a_pool_count_as_full_attention() -> None:
    pool = sized("gemma-3-27b", "h200", mem_fraction_static=0.8)
    assert pool.pools.window_tokens is None
    assert pool.pools.kv_bytes == pool.pools.tokens * (425_984 + 81_920)


def test_sglang_pool_uses_memory_and_scheduler_flags_of_a_scenario(tables: Any) -> None:
    made = tables(
        model={"name": "llama-3.1-8b", "max_model_len": 8192},
        device={"name": "h100"},
        memory={"mem_fraction_static": "auto"},
        allocator=[
            {
                "kind": "radix",
                "page_size": 64,
                "scheduler": {"kind": "sglang", "chunked_prefill_size": 2048},
            }
        ],
    )
    result = kvsim.simulate(made, [Request("r", 0, 100, 10)])
    expected = sized("llama-3.1-8b", "h100", page_size=64, chunked_prefill_size=2048)
    capacity = result.runs[0].summary["memory"]["capacity_tokens"]
    assert capacity == expected.pools.tokens
    again = kvsim.simulate(result.scenario, [Request("r", 0, 100, 10)])
    assert again.runs[0].summary["memory"]["capacity_tokens"] == capacity


@pytest.mark.parametrize(
    ("name", "flags", "allocator"),
    [
        ("gpt-oss-20b", {"page_size": 16}, {"page_size": 16}),
        ("llama-4-scout", {}, {}),
        ("qwen3.5-27b", {}, {}),
        ("qwen3.5-27b", {"disable_radix_cache": True}, {"disable_radix_cache": True}),
    ],
)
def test_simulated_sglang_pools_have_the_computed_sizes(
    tables: Any, name: str, flags: dict[str, Any], allocator: dict[str, Any]
) -> None:
    of_four = {"name": name, "max_model_len": 8192, "tensor_parallel_size": 4}
    made = tables(
        model=of_four,
        device={"name": "h100"},
        memory={"mem_fraction_static": 0.85},
        allocator=[{"kind": "radix", **allocator}],
        scheduler={"kind": "sglang"},
    )
    options = Scenario.from_table(made)
    simulation = Simulation(options, [Request("r", 0, 100, 10)])
    built = simulation.replica_spec(options.allocator[0]).build().allocator
    model = ModelOptions.parse(of_four, "model")
    settings = SglangSettings.parse({"mem_fraction_static": 0.85, **flags}, "memory")
    pools = size_sglang(model.build(), named_device("h100"), model, settings).pools
    assert isinstance(built, RadixAllocator)
    assert built.pool_tokens == pools.tokens
    if built.second.in_steps:
        assert built.second.part.pool == (pools.window_tokens or pools.states)
        held = (
            built.pool_tokens * built.token_bytes
            + built.second.part.pool * built.second.part.unit_bytes
        )
        assert (
            0 <= built.capacity_bytes - held <= max(built.token_bytes, built.second.part.unit_bytes)
        )
    else:
        assert built.max_sequences == pools.states


@pytest.mark.parametrize(("kind", "window"), [("gpt_oss", 127), ("mimo_v2", 128)])
def test_cached_window_length_follows_sglang_by_model_kind(kind: str, window: int) -> None:
    layout = cached_layout(kind, KVLayout((WINDOW, FULL)))
    assert [group.window_tokens for group in layout.groups] == [window, None]


def test_windows_without_their_own_pool_are_cached_as_full_attention() -> None:
    layout = cached_layout("gemma3_text", KVLayout((WINDOW, FULL)))
    assert [group.kind for group in layout.groups] == ["full", "full"]
    assert layout.bytes_per_token == 24_576 + 20_480


def test_published_state_count_equals_sglangs_formula() -> None:
    """sgl-project/sglang #25993, Qwen3.5 122B over four GPUs: 47 % of the rest, 15.9 GB, about 435
    slots at mamba_full_memory_ratio = 0.9. The unit of the 15.9 is not told: GiB is the nearer.
    """
    options = ModelOptions.parse({"name": "qwen3.5-122b-a10b", "tensor_parallel_size": 4}, "model")
    budget = int(15.9 * (1 << 30) * 1.9 / 0.9)
    pools = divide(
        budget,
        options.layout(options.build()),
        SglangSettings(),
        chunk=8192,
        max_model_len=65_536,
    )
    assert pools.states is not None
    assert pools.states == pytest.approx(435, rel=0.05)
    share = 0.9 / (1 + 0.9)
    assert f"{share:.1%}" == "47.4%"
    state = pools.state_bytes // (pools.states + 1)
    assert pools.state_bytes <= budget * share < pools.state_bytes + state


@pytest.mark.parametrize("other", [{"engine_version": "0.19"}, {"max_loras": 2}], ids=str)
def test_vllm_options_with_sglang_pool_sizing_are_refused(
    tables: Any, other: dict[str, Any]
) -> None:
    made = tables(memory={"mem_fraction_static": 0.8, **other}, allocator=[{"kind": "radix"}])
    with pytest.raises(InputError, match="is vLLM's"):
        kvsim.simulate(made, [Request("r", 0, 100, 10)])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--page-size", "16"], "no option of vLLM's pool"),
        (["--mem-fraction-static", "auto", "--block-size", "32"], "no option of SGLang's pools"),
        (["--mem-fraction-static", "2"], "mem_fraction_static"),
        (["--mem-fraction-static", "0.8", "--chunked-prefill-size", "0"], "at least 1, or -1"),
    ],
)
def test_memory_command_refuses_options_of_two_engines(flags: list[str], words: str) -> None:
    said = CliRunner().invoke(app, ["memory", "llama-3.1-8b", "--device", "h100", *flags])
    assert said.exit_code != 0
    assert words in str(said.exception) + said.output


def test_memory_command_prints_the_sglang_servers_figures() -> None:
    flags = ["--device", "h100", "--mem-fraction-static", "0.85", "--page-size", "64"]
    said = CliRunner().invoke(app, ["memory", "gpt-oss-20b", *flags])
    assert said.exit_code == 0, said.output
    pool = sized("gpt-oss-20b", "h100", mem_fraction_static=0.85, page_size=64)
    for line in lines(pool):
        assert line in said.output


def test_expert_parallelism_changes_no_pool_and_the_older_model_is_named() -> None:
    flags = ["--engine", "sglang", "--tensor-parallel-size", "8", "--device", "b200"]
    flags += ["--engine-version", "0.4.10", "--enable-expert-parallel"]
    said = CliRunner().invoke(app, ["memory", "deepseek-ai/DeepSeek-R1-0528", *flags])
    assert said.exit_code == 0, said.output
    assert "--enable-expert-parallel changes nothing here" in said.output
    assert "is sized as deepseek-ai/DeepSeek-V3" in said.output


def test_data_parallel_attention_ranks_share_the_experts() -> None:
    """Eight H200 with DeepSeek-R1: attention on one GPU, experts over all. The reserve is that of
    the whole server, with room for padding (arg_groups/memory_hook.py `reserve_for_graph_mb`).
    """
    table = {"name": "deepseek-r1", "data_parallel_size": 8, "enable_expert_parallel": True}
    options = ModelOptions.parse({**table, "max_model_len": 8192}, "model")
    model, device = options.build(), named_device("h200")
    settings = SglangSettings(chunked_prefill_size=2048, max_running_requests=32)
    pool = size_sglang(model, device, options, settings)
    whole = model.weight_bytes(1)
    experts = model.weight_format.num_bytes(Weights(expert=model.weights(1).expert))
    assert pool.weights_bytes == pytest.approx(whole - experts * 7 / 8, rel=1e-6)
    mib = device.memory_bytes / MIB
    reserved = 512 + 1.5 * 16384 + 1024 + 2 * 256 + 3 * 8 * 256 + 1.5 * 1024
    assert pool.mem_fraction_static == round((mib - reserved) / mib, 3)
    assert pool.chunked_prefill_size == 2048


@pytest.mark.parametrize(
    ("version", "mib", "gpus", "fraction", "chunk"),
    [
        # srt/server_args.py of the wheels: shares by GPUs, 13 GiB, tiers, parts
        ("0.4.2", 81_559, 4, 0.85, 8192),
        ("0.4.6", 143_771, 8, (143_771 - 13 * 1024) / 143_771, 8192),
        ("0.4.10", 16_303, 1, round((16_303 - 2.9 * 1024) / 16_303, 3), 2048),
        ("0.4.10", 183_359, 8, round((183_359 - 32 * 1024) / 183_359, 3), 16384),
        ("0.5.6", 24_564, 2, round((24_564 - 512 - 3072 - 256 - 48) / 24_564, 3), 2048),
        ("0.5.12.post1", 24_564, 2, round((24_564 - 3888 - 8 * 42) / 24_564, 3), 2048),
    ],
)
def test_default_memory_share_depends_on_the_sglang_version(
    version: str, mib: int, gpus: int, fraction: float, chunk: int
) -> None:
    settings = SglangSettings(engine_version=version)
    assert default_fraction(settings, mib, gpus, latent=False) == pytest.approx(fraction, abs=1e-9)
    assert chunk_of(settings, mib) == chunk


def test_vision_tower_lowers_the_default_memory_share() -> None:
    """`adjust_mem_fraction_for_vlm`: 27 layers of 1,152 elements, named as it looks for them."""
    settings = SglangSettings()
    plain, sees = (
        default_fraction(settings, 81_559, 1, latent=False, vision=vision)
        for vision in (None, Vision(27, 1152))
    )
    assert sees / plain == pytest.approx(0.95 * (1 - 0.1 * (27 * 1152**2 / 24 / 1024**2 - 1)))


def test_sglang_0_4_10_pool_on_16_gib_equals_the_log() -> None:
    """Qwen3-0.6B on an RTX 5080, August 2025: 104,273 tokens of two halves of 5.57 GiB."""
    pool = sized("qwen3-0.6b", "rtx-5080", engine_version="0.4.10")
    assert pool.pools.tokens == pytest.approx(104_273, rel=0.01)


def test_amd_aiter_lowers_any_memory_share() -> None:
    long, short = (
        sized("qwen3-8b", "mi355x", mem_fraction_static=0.8, max_model_len=longest)
        for longest in (40_960, 8192)
    )
    assert long.mem_fraction_static == pytest.approx(0.68)
    assert short.mem_fraction_static == 0.8


def test_invalid_sglang_version_is_refused() -> None:
    with pytest.raises(InputError, match=r"from 0\.4\.0 on"):
        SglangSettings.parse({"engine_version": "0.3"}, "memory")
