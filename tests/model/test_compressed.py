"""DeepSeek-V4: parameters and KV bytes of its layers, and an engine's groups of blocks."""

import pytest

import kvsim
from kvsim.capacity.drafter import Drafter
from kvsim.capacity.planning import Serving, plan_cache
from kvsim.capacity.start_up import start_up
from kvsim.device import named_device
from kvsim.memory.paged.options import Paged
from kvsim.model import CompressedAttention, Model, named_model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.request import Request
from kvsim.speculation import Speculation
from kvsim.step_time.options import Hardware
from kvsim.step_time.roofline import Roofline
from kvsim.vllm.versions import vllm_version

FLASH = named_model("deepseek-v4-flash")


def served(max_model_len, batched_tokens, *, packing="widest"):
    serving = Serving(max_model_len, batched_tokens, batches_in_flight=1, packing=packing)
    return plan_cache(FLASH.kv_caches("fp8"), serving)


def test_deepseek_v4_parameters_equal_the_published_counts():
    """284 B with 13 B active and 1.6 T with 49 B active, by their cards; the checkpoints hold a
    next-token module more.
    """
    assert FLASH.num_params / 1e9 == pytest.approx(284.3, abs=0.1)
    assert FLASH.num_active_params / 1e9 == pytest.approx(13.8, abs=0.1)
    assert FLASH.weight_bytes() / 1e9 == pytest.approx(155.9, abs=0.1)
    pro = named_model("deepseek-v4-pro")
    assert pro.num_params / 1e12 == pytest.approx(1.573, abs=0.001)
    assert pro.num_active_params / 1e9 == pytest.approx(49.8, abs=0.1)
    base = named_model("DeepSeek-V4-Flash-Base")  # in 8 bits throughout
    assert base.weight_bytes() / 1e9 == pytest.approx(285.7, abs=0.1)


def test_parameter_counts_equal_transformers():
    """The same shapes with layer_types, as transformers 5.23 writes them: 284,325,869,015."""
    kinds = ["heavily_compressed_attention", "compressed_sparse_attention"]
    model = Model.from_hf(
        {
            "model_type": "deepseek_v4",
            "hidden_size": 4096,
            "num_hidden_layers": 43,
            "num_attention_heads": 64,
            "moe_intermediate_size": 2048,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 6,
            "vocab_size": 129280,
            "max_position_embeddings": 1048576,
            "layer_types": [kinds[0]] * 2 + [kinds[index % 2] for index in range(41)],
            "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40,
            "torch_dtype": "bfloat16",
        }
    )
    assert model.num_params == 284_325_869_015


def test_deepseek_v4_caches_have_their_own_block_sizes():
    """Pages by vLLM 0.33's specs: 64 rows of 584 bytes on whole 576, and so on."""
    caches = FLASH.kv_caches("fp8")
    blocks = {(cache.kind, cache.window_tokens, cache.own_block) for cache in caches}
    assert blocks == {
        ("sliding", 128, (64, 37_440)),
        ("mla", None, (256, 37_440)),
        ("mla", None, (256, 8_640)),
        ("mla", None, (256, 1_728)),
        ("sliding", 8, (4, 32_832)),
        ("sliding", 8, (4, 8_640)),
        ("sliding", 128, (8, 32_832)),
    }
    assert len(caches) == 43 + 21 * 4 + 20 * 2


def test_deepseek_v4_groups_are_packed_as_in_vllm():
    """As vLLM 0.33.0's own planner makes groups, in its order, bytes of a block and blocks of a
    request of these layers (v1/core/kv_cache_planning.py).
    """
    plan = served(65_536, 8192)
    assert [(group.kind, group.layers, group.block_size) for group in plan.groups] == [
        ("sliding", 22, 64),
        ("sliding", 21, 64),
        ("mla", 62, 256),
        ("sliding", 42, 4),
        ("sliding", 20, 8),
    ]
    assert plan.bytes_per_block == 21 * (37_440 + 8_640) + 20 * 1_728
    assert plan.block_size == 256
    blocks = 256 + 2 * (130 + 1) + (2050 + 1) + (1040 + 1)
    assert plan.blocks_of(65_536) == blocks


def test_deepseek_v4_pro_has_the_expected_layer_groups():
    """The same of DeepSeek-V4-Pro, whose layers compress from the first one on."""
    serving = Serving(65_536, 8192, batches_in_flight=1)
    plan = plan_cache(named_model("deepseek-v4-pro").kv_caches("fp8"), serving)
    assert [(group.kind, group.layers, group.block_size) for group in plan.groups] == [
        ("sliding", 31, 64),
        ("sliding", 30, 64),
        ("mla", 91, 256),
        ("sliding", 31, 8),
        ("sliding", 60, 4),
    ]
    assert plan.bytes_per_block == 1_435_968


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro"])
@pytest.mark.parametrize("dtype", ["fp8", "bfloat16"])
@pytest.mark.parametrize("version", ["0.25", "0.26", "0.33"])
def test_deepseek_v4_pool_has_the_same_groups_in_memory_and_run(name, dtype, version):
    """The same groups and bytes from the layers of a plan and from the layout of a run, whose
    bytes of a token are those of its groups.
    """
    model = named_model(name)
    rules = vllm_version(version).blocks
    serving = Serving(65_536, 8192, packing=rules.packing)
    plan, layout = plan_cache(model.kv_caches(dtype), serving), model.kv_layout(dtype)
    grouping = Paged().grouping(layout, rules)
    assert (grouping.groups, grouping.block_bytes) == (plan.groups, plan.bytes_per_block)
    assert sum(group.slot_bytes for group in grouping.groups) == layout.bytes_per_token
    for group in grouping.groups:
        assert group.slot_bytes * group.block_size <= grouping.block_bytes
    assert grouping.hit_tokens == 256


@pytest.mark.parametrize("given", [{"block_size": 128}, {"disable_hybrid_kv_cache_manager": True}])
def test_options_unsupported_by_packed_blocks_are_refused(given):
    tables = {
        "model": {"name": "deepseek-v4-flash", "tensor_parallel_size": 8, "max_model_len": 65536},
        "device": {"name": "h200"},
        "allocator": [{"kind": "paged", **given}],
    }
    with pytest.raises(InputError, match=f"{next(iter(given))}.*blocks of their own"):
        kvsim.simulate(tables, [Request("r", 0, 100, 4)])


def test_deepseek_v4_step_reads_only_indexed_keys():
    """Beyond 512 picked keys of 4 tokens each, a longer context adds keys of the indexer and of the
    layers of 128 to one, and nothing else.
    """
    step = Roofline(memory_efficiency=1.0, compute_efficiency=1.0).build(
        Hardware(FLASH, named_device("h200"), 8, FLASH.kv_layout("fp8"))
    )
    windows = [each.window_tokens for each in step.attention]
    assert sorted(map(str, windows)) == ["128", "2048", "None", "None"]
    ends = [step.decode_run(1, tokens).first_ps for tokens in (10_000, 20_000, 30_000)]
    assert ends[1] - ends[0] == ends[2] - ends[1]
    unpicked = sum(each.context_ps for each in step.attention if each.window_tokens is None)
    assert ends[1] - ends[0] == 10_000 * unpicked


def test_vllm_0_22_refuses_to_start_deepseek_v4_in_a_small_pool():
    """github.com/vllm-project/vllm/issues/44376: 30,000 tokens need 6.66 GiB, and 5.44 GiB are
    enough for 13,528 (16,384 tokens a step reproduce both).
    """
    plan = served(30_000, 16_384, packing="repeats")
    assert f"{plan.blocks_of(30_000) * plan.bytes_per_block / GIB:.2f}" == "6.66"
    blocks = int(5.445 * GIB) // plan.bytes_per_block
    assert not start_up(plan, blocks, vllm_version("0.22").sizing).starts
    assert start_up(plan, blocks, vllm_version("0.22").sizing).longest_tokens == pytest.approx(
        13_528, abs=20
    )


@pytest.mark.parametrize(
    ("gib", "longest", "batches", "tokens"),
    [(7.71, 121_344, 2, 150_992), (7.01, 912_128, 1, 1_009_661)],
)
def test_deepseek_v4_blocks_equal_logs_of_vllm_0_26(gib, longest, batches, tokens):
    """github.com/vllm-project/vllm/issues/51041, with a next-token module and 8,192 tokens a step:
    two batches in flight reproduce one of its logs, one batch the other (0.1 % is the rounding of
    the GiB).
    """
    module = Drafter(None, Speculation("mtp", 1)).caches(FLASH, "fp8", 1)
    assert [cache.own_block for cache in module] == [(64, 37_440)]  # a window alone
    serving = Serving(longest, 8192, batches_in_flight=batches, packing="sizes")
    plan = plan_cache(FLASH.kv_caches("fp8"), serving, module)
    assert plan.bytes_per_block == 22 * 37_440 + 21 * 8_640 + 20 * 1_728
    log = start_up(plan, plan.num_blocks(int(gib * GIB)), vllm_version("0.26").sizing)
    assert log.kv_cache_size_tokens == pytest.approx(tokens, rel=1e-3)


def test_deepseek_v4_caches_are_fp8_or_16_bits_only():
    window = FLASH.kv_caches("bfloat16")[0].own_block
    assert window == (64, 64 * 1024)
    with pytest.raises(InputError, match="over compressed tokens is not kept in it; got int8"):
        FLASH.kv_caches("int8")


@pytest.mark.parametrize("ratios", [[0, 2], [0]])
def test_unknown_compression_ratios_are_refused(ratios):
    config = {
        "model_type": "deepseek_v4",
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "moe_intermediate_size": 64,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 4096,
    }
    with pytest.raises(InputError, match="compress_ratios"):
        Model.from_hf({**config, "compress_ratios": ratios})
    found = Model.from_hf({**config, "compress_ratios": [1, 128]})
    assert [layer.mixer.compress_ratio for layer in found.layers] == [0, 128]
    assert all(isinstance(layer.mixer, CompressedAttention) for layer in found.layers)
