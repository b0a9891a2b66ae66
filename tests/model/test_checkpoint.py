"""Weights from the headers of a checkpoint: bytes on each GPU, and refused files."""

import json

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.model import Model
from kvsim.model.checkpoint.headers import folder_tensors
from kvsim.plumbing.errors import InputError

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS = 128, 256, 8, 2, 16, 100, 2
CONFIG = {
    "model_type": "qwen3_moe",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "intermediate_size": INNER,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}
ATTENTION = HIDDEN * HEADS * HEAD_DIM  # elements of the projection of queries, or out
KEYS = HIDDEN * KV_HEADS * HEAD_DIM
EXPERTS = 4 * 3 * HIDDEN * 32


def tensors():
    """Tensors of one shard: experts in 8 bits with float32 scales, the rest in float32."""
    table = {"model.embed_tokens.weight": ("F32", [VOCAB, HIDDEN])}
    table |= {"lm_head.weight": ("F32", [VOCAB, HIDDEN]), "model.norm.weight": ("F32", [HIDDEN])}
    for at in range(LAYERS + 1):  # the last is a module that drafts
        layer = f"model.layers.{at}."
        table[layer + "input_layernorm.weight"] = ("F32", [HIDDEN])
        table[layer + "mlp.gate.weight"] = ("F32", [4, HIDDEN])
        table[layer + "self_attn.q_proj.weight"] = ("F32", [HEADS * HEAD_DIM, HIDDEN])
        table[layer + "self_attn.o_proj.weight"] = ("F32", [HIDDEN, HEADS * HEAD_DIM])
        table[layer + "self_attn.k_proj.weight"] = ("F32", [KV_HEADS * HEAD_DIM, HIDDEN])
        table[layer + "self_attn.v_proj.weight"] = ("F32", [KV_HEADS * HEAD_DIM, HIDDEN])
        table[layer + "self_attn.rotary_emb.inv_freq"] = ("F32", [8])
        for expert in range(4):
            mlp = f"{layer}mlp.experts.{expert}."
            for name in ("gate_proj", "up_proj", "down_proj"):
                table[f"{mlp}{name}.weight"] = ("F8_E4M3", [32, HIDDEN])
                table[f"{mlp}{name}.weight_scale_inv"] = ("F32", [1, 1])
    return {name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in table.items()}


def write(folder, table):
    text = json.dumps({"__metadata__": {"format": "pt"}, **table}).encode()
    folder.write_bytes(len(text).to_bytes(8, "little") + text)


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    table = tensors()
    names = sorted(table)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, held in shards.items():
        write(tmp_path / shard, {name: table[name] for name in held})
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    index = {"metadata": {}, "weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    write(tmp_path / "consolidated.safetensors", table)  # the same once more, of no index
    return tmp_path


def layer_bytes(tp, shards):
    whole = 2 * (HIDDEN + 4 * HIDDEN)
    attention = 2 * (2 * ATTENTION // tp + 2 * KEYS // min(tp, KV_HEADS))
    return whole + attention + (EXPERTS + 12 * 4) // shards


@pytest.mark.parametrize(("tp", "dp"), [(1, 1), (2, 1), (4, 1), (1, 4)])
def test_checkpoint_bytes_are_split_over_gpus(checkpoint, tp, dp):
    """Two KV heads are replicated on the other GPUs; embedding and head have 128 rows."""
    model = Model.from_hf(checkpoint)
    tables = 2 * 2 * 128 * HIDDEN // tp
    layers = LAYERS * layer_bytes(tp, tp * dp)
    assert model.weight_bytes(tp, dp) == tables + layers + 2 * HIDDEN
    assert model.drafting_bytes(tp) == layer_bytes(tp, tp)
    assert model.source.endswith("weights by the checkpoint's headers")


def test_checkpoint_bytes_of_a_stage_are_those_of_its_layers(checkpoint):
    stored = Model.from_hf(checkpoint).stored
    assert stored is not None
    first, last = (stored.num_bytes(start=at, count=1) for at in (0, 1))
    assert first + last == stored.num_bytes()
    assert first == 2 * 128 * HIDDEN + layer_bytes(1, 1)


def test_memory_command_accepts_a_model_folder(checkpoint):
    asked = ["memory", str(checkpoint), "--device", "l4", "--json"]
    found = json.loads(CliRunner().invoke(app, asked).stdout)
    rotary = 256 * HEAD_DIM * 2
    assert found["weights_bytes"] == Model.from_hf(checkpoint).weight_bytes() + rotary
    assert "headers" in found["source"]
    plain = json.loads(CliRunner().invoke(app, [*asked, "--quantization", "int4"]).stdout)
    assert plain["weights_bytes"] < found["weights_bytes"]


def test_damaged_checkpoint_files_are_refused(checkpoint, tmp_path):
    (checkpoint / "a.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    with pytest.raises(InputError, match="no header of a safetensors file"):
        folder_tensors(checkpoint)
    (checkpoint / "a.safetensors").unlink()
    with pytest.raises(InputError, match="names a file that is not there"):
        folder_tensors(checkpoint)
    other = tmp_path / "other"
    other.mkdir()
    write(other / "model.safetensors", {"x.weight": {"dtype": "F7", "shape": [1]}})
    with pytest.raises(InputError, match="known dtype"):
        folder_tensors(other)
    assert folder_tensors(other / "none") == {}
