"""Parameters, weight bytes and FLOPs against published counts and closed forms."""

import pytest

from kvsim.model import ModelOptions, named_model
from kvsim.plumbing.units import GIB

# Parameter counts of the checkpoints on Hugging Face.
PARAMS = {
    "opt-125m": 125_239_296,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "gpt2": 124_439_808,
    "gpt-neox-20b": 20_554_567_680,
    "falcon-7b": 6_921_720_704,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-6b": 6_061_035_520,
    "yi-34b": 34_388_917_248,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "phi-3-mini-4k": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "jamba-v0.1": 51_570_323_328,
}


# In billions, as their cards have it, towers included; a next-token module is not counted.
BILLIONS = {
    "pythia-6.9b": 6.86,
    "pythia-12b": 11.85,
    "bloom-7b1": 7.07,
    "gpt-j-6b": 6.05,
    "gpt2-xl": 1.56,
    "starcoder2-3b": 3.03,
    "starcoder2-7b": 7.17,
    "starcoder2-15b": 15.96,
    "command-r": 34.98,
    "command-r-08-2024": 32.3,
    "command-r-plus": 103.8,
    "command-r7b": 8.03,
    "command-a": 111.06,
    "aya-expanse-8b": 8.03,
    "olmo-2-32b": 32.23,
    "olmo-3-7b": 7.30,
    "olmo-3-32b": 32.23,
    "olmoe-1b-7b": 6.92,
    "nemotron-h-8b": 8.1,
    "nemotron-nano-12b-v2": 12.31,
    "falcon3-7b": 7.46,
    "falcon3-10b": 10.31,
    "solar-10.7b": 10.73,
    "stablelm-2-1.6b": 1.64,
    "phi-1.5": 1.42,
    "glm-4-9b-0414": 9.4,
    "glm-4-32b-0414": 32.57,
    "ministral-3-3b": 3.85,
    "ministral-3-8b": 8.92,
    "ministral-3-14b": 13.95,
    "devstral-small-2-24b": 24.0,
    "devstral-2-123b": 125.0,
    "gemma-3-270m": 0.268,
    "qwen1.5-7b": 7.72,
    "qwen1.5-14b": 14.17,
    "qwen1.5-72b": 72.29,
    "qwen2-vl-7b": 8.29,
    "qwen3-vl-2b": 2.13,
    "qwen3-vl-8b": 8.77,
    "qwen3-vl-30b-a3b": 31.07,
    "qwen3-vl-235b-a22b": 235.7,
    "smollm2-360m": 0.362,
    "llava-1.5-7b": 7.06,
    "llava-1.6-mistral-7b": 7.57,
    "qwen1.5-1.8b": 1.84,
    "qwen1.5-4b": 3.95,
    "qwen1.5-32b": 32.5,
    "qwen1.5-110b": 111.2,
    "qwen2-57b-a14b": 57.4,
    "qwen2-vl-2b": 2.21,
    "nemotron-3-super-120b-a12b": 120.67,
    "falcon-h1-7b": 7.59,
    "falcon-h1-34b": 33.64,
    "falcon-mamba-7b": 7.27,
    "mamba-2.8b": 2.77,
    "mamba-codestral-7b": 7.29,
    "lfm2-8b-a1b": 8.34,
    "granite-4.0-micro": 3.40,
    "mistral-small-4-119b": 119.4,
    "glm-4.5v": 107.7,
    "mpt-7b": 6.65,
    "mpt-30b": 29.96,
    "bloom-560m": 0.559,
    "bloom-176b": 176.2,
    "starcoder-15b": 15.5,
    "chatglm3-6b": 6.24,
    "internlm2.5-20b": 19.86,
    "exaone-4.0-32b": 32.0,
    "solar-open-100b": 102.7,
    "ernie-4.5-21b-a3b": 21.83,
    "olmo-7b": 6.89,
}


def test_parameter_counts_equal_the_model_cards():
    found = {name: named_model(name).num_params / 1e9 for name in BILLIONS}
    assert found == pytest.approx(BILLIONS, rel=0.005)


def test_parameter_counts_equal_the_published_ones():
    assert {name: named_model(name).num_params for name in PARAMS} == PARAMS


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3-8b", 8.03),
        ("mixtral-8x7b", 12.9),
        ("deepseek-v3", 37.5),
        ("qwen3-30b-a3b", 3.35),
        ("gpt-oss-120b", 5.7),
        ("qwen3-next-80b-a3b", 3.9),
    ],
)
def test_active_parameters_equal_published_counts(name, billions):
    assert named_model(name).num_active_params / 1e9 == pytest.approx(billions, rel=0.01)


def test_weight_bytes_follow_from_parameter_counts():
    assert named_model("llama-3-8b").weight_bytes() == 2 * 8_030_261_248
    # DeepSeek-V3 is published in fp8 with 16-bit embeddings, head, norms.
    fp8 = named_model("deepseek-v3")
    tables = 2 * fp8.vocab_size * fp8.hidden_size
    assert 671.0e9 + tables < fp8.weight_bytes() < 671.1e9 + 1.001 * tables
    # The mxfp4 checkpoint of gpt-oss-20b is 13.8 GB, that of gpt-oss-120b 65.3 GB.
    assert named_model("gpt-oss-20b").weight_bytes() / 1e9 == pytest.approx(13.8, abs=0.05)
    assert named_model("gpt-oss-120b").weight_bytes() / 1e9 == pytest.approx(65.3, abs=0.1)


def test_weights_are_split_over_gpus_except_replicated_ones():
    model = named_model("llama-3-70b")
    norms = 80 * 2 * 8192 + 8192
    assert model.weights(4).total == (model.num_params - norms) // 4 + norms
    # Beyond 8 GPUs the 8 KV heads are replicated.
    replicated = 80 * 2 * 8192 * 128
    assert model.weights(16).linear - model.weights(8).linear // 2 == replicated // 2


def test_quantised_weight_bytes_follow_from_their_bits():
    plain = ModelOptions(name="llama-3-8b").build()
    tables = 2 * plain.vocab_size * plain.hidden_size
    norms = 65 * plain.hidden_size
    linear = plain.num_params - tables - norms
    fp8 = ModelOptions(name="llama-3-8b", quantization="fp8").build()
    assert fp8.weight_bytes() == linear + 2 * (tables + norms)
    int4 = ModelOptions(name="llama-3-8b", quantization="int4").build()
    assert int4.weight_bytes() / GIB == pytest.approx(5.33, abs=0.02)  # AWQ checkpoint: 5.7 GB
    measured = ModelOptions(name="llama-3-8b", weight_bytes_per_param=0.75).build()
    assert measured.weight_bytes() == plain.num_params * 3 // 4
    back = ModelOptions(name="deepseek-v3", quantization="none").build()
    assert back.weight_bytes() == 2 * back.num_params


def test_opt_13b_flops_with_and_without_cache_equal_the_example():
    """OPT-13B, 161 prompt and 338 output tokens: 12.8 TFLOP with the cache, 2,819 without."""
    model = named_model("opt-13b")
    per_token, logits = model.matmul_flops_per_token, 338 * model.logits_flops
    contexts = range(1, 161 + 338)
    cached = 498 * per_token + model.attention_flops(contexts) + logits
    assert cached / 1e12 == pytest.approx(12.8, abs=0.05)
    lengths = range(161, 161 + 338)
    again = per_token * sum(lengths) + logits
    again += sum(model.attention_flops(range(1, n + 1)) for n in lengths)
    assert again / 1e12 == pytest.approx(2819, abs=1)


def test_attention_flops_are_four_c_h_d_l_and_capped_by_windows():
    assert named_model("llama-3-8b").attention_flops([1000]) == 4 * 1000 * 4096 * 32
    gemma = named_model("gemma-3-12b")
    per_layer = 4 * 16 * 256
    assert gemma.attention_flops([5000]) == per_layer * (8 * 5000 + 40 * 1024)
