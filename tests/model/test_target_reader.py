"""Parameters of drafters that read their target's hidden states, as in vLLM's modules."""

import json

import pytest

from kvsim.capacity.drafter import Drafter
from kvsim.engine.speculation.options import SpeculativeConfig
from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.scenario.build.drafter import drafter_of
from kvsim.speculation import Speculation

# The shapes of EAGLE-3's drafter for Llama-3.1-8B and of DFlash's for Qwen3-8B.
EAGLE_3 = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "float16",
    "tie_word_embeddings": False,
}
DFLASH = {
    "model_type": "qwen3",
    "architectures": ["DFlashDraftModel"],
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}


@pytest.mark.parametrize("tp", [1, 2, 16])
def test_eagle_3_projects_three_layers_and_the_embedding(tp):
    kept = max(1, 8 // tp)
    attention = 2 * 4096 * (32 // tp + 2 * kept) * 128 + 4096 * 4096 // tp
    joined, fed, head = 3 * 4096 * 4096, 3 * 4096 * 14336 // tp, 32000 * 4096 // tp
    norms = (2 + 1 + 1) * 4096
    assert Model.from_hf(EAGLE_3).weights(tp).total == attention + joined + fed + head + norms


@pytest.mark.parametrize("tp", [1, 2, 16])
def test_dflash_has_the_embedding_and_the_head_of_its_target(tp):
    kept = max(1, 8 // tp)
    width = (32 // tp + 2 * kept) * 128
    layer = 4096 * width + 4096 * 4096 // tp + 3 * 4096 * 12288 // tp + 2 * 4096 + 2 * 128
    copied = 5 * 2 * kept * 128 * 4096
    joined, norms = 5 * 4096 * 4096, 2 * 4096
    assert Model.from_hf(DFLASH).weights(tp).total == 5 * layer + joined + copied + norms


def test_drafter_with_a_reduced_vocabulary_has_its_own_head():
    own, shared = Model.from_hf({**DFLASH, "draft_vocab_size": 32000}), Model.from_hf(DFLASH)
    assert own.weights(2).total - shared.weights(2).total == 32000 * 4096 // 2


def test_drafter_parameters_depend_on_target_width_and_layers_read():
    narrow = {key: value for key, value in DFLASH.items() if key != "dflash_config"}
    wide = Model.from_hf({**narrow, "target_hidden_size": 5120, "num_hidden_layers": 6})
    assert wide.target_reader.joined_elements == 6 * 5120
    alone = Model.from_hf({**DFLASH, "dflash_config": {"use_aux_hidden_state": False}})
    assert alone.target_reader.joined_elements == 0


def test_speculators_config_with_two_tables_gives_the_same_drafter():
    inner = {key: value for key, value in EAGLE_3.items() if key != "draft_vocab_size"}
    inner["architectures"] = ["LlamaForCausalLM"]
    outer = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32000,
        "transformer_layer_config": inner,
    }
    assert Model.from_hf(outer).weights() == Model.from_hf(EAGLE_3).weights()


def test_independent_draft_model_has_its_own_embedding_and_head():
    assert Model.from_hf({**EAGLE_3, "architectures": ["LlamaForCausalLM"]}).target_reader is None


def test_drafter_method_is_read_from_its_config(tmp_path):
    target = ModelOptions(name="llama-3.1-8b").build(offline=True)
    drafter = Drafter(Model.from_hf(DFLASH), Speculation("draft_model", 8))
    cost = drafter.cost(target, (), "bfloat16", 1)
    assert cost.method == "dflash"
    assert cost.text().startswith("Drafting (dflash, 8 tokens)")

    def config(content, method):
        (tmp_path / "config.json").write_text(json.dumps(content))
        return drafter_of(
            SpeculativeConfig(
                method=method,
                num_speculative_tokens=3,
                acceptance_rate=0.5,
                hf_config="config.json",
            ),
            tmp_path,
        )

    assert config(EAGLE_3, "eagle3").method == "eagle3"
    with pytest.raises(InputError, match=r"method: the drafter reads hidden states.*'eagle3'"):
        config(EAGLE_3, "draft_model")
    with pytest.raises(InputError, match=r"method: the drafter reads hidden states.*'dflash'"):
        config(DFLASH, "draft_model")
    assert config(DFLASH, "dflash").method == "dflash"
    alone = {**DFLASH, "architectures": ["Qwen3ForCausalLM"]}
    with pytest.raises(InputError, match="hf_config: the drafter is no model of dflash"):
        config(alone, "dflash")
