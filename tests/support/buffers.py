"""Allocators of buffers on small pools, and sequences for them."""

from kvsim.layout import KVGroup, KVLayout
from kvsim.memory import ALLOCATORS
from kvsim.memory.allocator import Demand
from kvsim.memory.options import MemorySpec
from kvsim.request import Request
from kvsim.sequence import Sequence

TOKEN = 4096
PLAIN = KVLayout((KVGroup("full", 4, TOKEN),))
MIXED = KVLayout(
    (
        KVGroup("full", 2, TOKEN // 2),
        KVGroup("sliding", 2, TOKEN // 2, window_tokens=16),
        KVGroup("recurrent", 3, 0, state_bytes=5000),
    )
)
COPY_BYTES_PER_S = 10**12


def build(kind, tokens, layout=PLAIN, max_model_len=256, odd_bytes=0, **options):
    memory = MemorySpec(tokens * TOKEN + odd_bytes, layout, max_model_len, COPY_BYTES_PER_S)
    return ALLOCATORS.get(kind).parse(options, "allocator").build(memory)


def sequence(prompt, output, order=0, **fields):
    seq = Sequence(Request(f"r{order}", 0, prompt, output, **fields), 0)
    seq.order = order
    return seq


def admit(allocator, seq, tokens=None):
    tokens = seq.num_tokens if tokens is None else tokens
    return allocator.admit(seq, Demand(tokens, seq.num_tokens, busy=bool(seq.order)))
