import json

import pytest
import torch

from evidence.prove.recompute import RecomputeStore
from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, Copy, TokenSpan
from kvsim.backend.stores.buffers import BufferStore
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore
from kvsim.plumbing.errors import InputError, InvariantError

SHAPE = Shape(2, 32, 4, 2, 8, 48, 10)
LLAMA_3_8B = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def test_shape_follows_from_a_hugging_face_config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_3_8B))
    shape = Shape.from_hf(path)
    assert shape.head_dim == 128
    assert shape.kv_bytes_per_token == 131072
    assert shape.layer_weights == 6_979_321_856  # 8.03e9 parameters less embeddings and norms
    assert Shape.from_hf(LLAMA_3_8B, "float32").kv_bytes_per_token == 262144


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_key_value_heads": 5}, "multiple of kv_heads"),
        ({"torch_dtype": "int7"}, "unknown dtype"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"hidden_size": 0}, "at least 1"),
        ({"head_dim": 7}, "even"),
    ],
)
def test_config_of_another_architecture_than_llama_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        Shape.from_hf(LLAMA_3_8B | change)


def begin(store, **place):
    store.begin(Batch.pack([TokenSpan("a", [1, 2, 3], 2, **place)]))


@pytest.mark.parametrize(
    ("store", "place", "words"),
    [
        (PagedStore(SHAPE, 4, 4), {"blocks": [1]}, "room for 4 slots and needs 5"),
        (PagedStore(SHAPE, 4, 4), {"blocks": [1, 4]}, "outside the pool"),
        (PagedStore(SHAPE, 4, 4), {"blocks": [1, -1]}, "outside the pool"),
        (ContiguousStore(SHAPE, 16), {"slot": 12}, "room for 4 slots"),
        (ContiguousStore(SHAPE, 16), {}, "no slot"),
        (BufferStore(SHAPE), {"capacity": 4}, "room for 4"),
        (BufferStore(SHAPE), {}, "no capacity"),
        (BufferStore(SHAPE), {"capacity": 8}, "no buffer"),
        (RecomputeStore(), {}, "without a cache"),
    ],
)
def test_address_outside_the_store_is_an_error(store, place, words):
    with pytest.raises(InvariantError, match=words):
        begin(store, **place)


def test_copies_outside_the_pool_are_an_error():
    for copy in (Copy(0, 14, 3), Copy(14, 0, 3), Copy(-1, 0, 1)):
        with pytest.raises(InvariantError):
            ContiguousStore(SHAPE, 16).copy(copy)
    with pytest.raises(InvariantError, match="within a block"):
        PagedStore(SHAPE, 4, 4).copy(Copy(0, 1, 5))


@pytest.mark.parametrize("target", [1, 3, 9])
def test_a_copy_moves_all_layers_even_where_ranges_overlap(target):
    store = ContiguousStore(SHAPE, 16)
    store.pool.fill(0)
    before = store.pool.rows.clone()
    store.copy(Copy(2, target, 5))
    assert torch.equal(store.pool.rows[:, :, target : target + 5], before[:, :, 2:7])


def test_buffers_grow_by_copying_and_are_freed():
    store = BufferStore(SHAPE)
    slot_bytes = SHAPE.kv_bytes_per_token
    key = torch.arange(3 * SHAPE.kv_dim, dtype=torch.float32).view(3, 2, 8)
    store.begin(Batch.pack([TokenSpan("a", [1, 2, 3], 0, capacity=4)]))
    for layer in range(SHAPE.layers):
        store.write(layer, key, -key)
    assert store.held_bytes == 4 * slot_bytes
    store.begin(Batch.pack([TokenSpan("a", [4], 3, capacity=8)]))
    assert store.held_bytes == 8 * slot_bytes
    store.write(0, key[:1] + 100, key[:1])
    kept_key, kept_value = store.read(0, 0)
    assert torch.equal(kept_key[:3], key)
    assert torch.equal(kept_value[:3], -key)
    assert torch.equal(kept_key[3], key[0] + 100)
    store.release("a")
    assert store.held_bytes == 0
