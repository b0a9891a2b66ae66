"""Compile the kernels for sm_90 without a GPU; print registers and spills as JSON.

Run as a program: the tests' own process may hold the kernels under Triton's interpreter.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kvsim.backend.shape import Shape
from kvsim.backend.transformer import fused, kernel
from kvsim.backend.transformer.tiles import DECODE_ROWS, PREFILL_ROWS, key_tile, power_of_two
from kvsim.backend.transformer.triton_attention import warps
from kvsim.backend.transformer.triton_between import GATE_BLOCK
from kvsim.backend.transformer.triton_between import warps as row_warps

# Pointers by what they point to; "e" is the model's own element. The rest are 32-bit integers.
POINTERS = {
    "e": (
        *("query", "key", "value", "rotated", "key_base", "value_base", "result"),
        *("rows", "stream", "delta", "weight", "total", "normed", "gate_up"),
    ),
    "fp8e4nv": ("narrowed",),
    "fp32": ("scales", "part", "part_max", "part_sum", "frequency"),
    "i64": ("key_offset", "value_offset", "position"),
    "i32": (
        "table",
        "token_span",
        "span_begin",
        "span_new",
        "span_start",
        "tile_span",
        "tile_token",
    ),
}
TYPES = {name: kind for kind, names in POINTERS.items() for name in names}


def compile_for(
    function: triton.JITFunction,
    element: str,
    head_dim: int,
    rows: int,
    splits: int,
    page: int,
    window: bool = False,
) -> dict:
    dtype = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[element]
    shape = Shape(1, 4096, 32, 8, head_dim, 14336, 1, dtype)
    every = {
        "PAGE": page,
        "ROW": shape.kv_dim,
        "ROW_PADDED": shape.kv_dim,
        "HEADS": shape.heads,
        "HEADS_PADDED": shape.heads,
        "KV_HEADS": shape.kv_heads,
        "KV_HEADS_PADDED": shape.kv_heads,
        "HALF_PADDED": head_dim // 2,
        "HIDDEN": shape.hidden,
        "HIDDEN_PADDED": shape.hidden,
        "WIDTH": shape.intermediate,
        "WIDTH_PADDED": power_of_two(shape.intermediate),
        "ADD": splits > 1,
        "INNER": shape.intermediate,
        "BLOCK": GATE_BLOCK,
        "GROUP": shape.group,
        "DIM": head_dim,
        "DIM_PADDED": head_dim,
        "ROWS": rows,
        "KEYS": key_tile(shape),
        "SPLITS": splits,
        "SPLITS_PADDED": splits,
        "WINDOW": 4096 if window else 0,
        "PRECISION": "ieee",
    }
    names = function.arg_names
    constants = {(at,): every[name] for at, name in enumerate(names) if name in every}

    def type_of(name: str) -> str:
        if name in every:
            return "constexpr"
        if name in TYPES:
            return "*" + (element if TYPES[name] == "e" else TYPES[name])
        return "fp32" if name in ("scale", "epsilon", "least", "most") else "i32"

    # What the launcher finds out by itself: torch's pointers and the strides are multiples of 16.
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, name in enumerate(names)
        if name in TYPES or name.endswith("_stride")
    }
    source = ASTSource(function, {name: type_of(name) for name in names}, constants, aligned)
    target = GPUTarget("cuda", 90, 32)
    wide = {fused.add_norm: shape.hidden, fused.narrow: shape.intermediate}
    num_warps = row_warps(wide[function]) if function in wide else warps(rows)
    built = triton.compile(source, target=target, options={"num_warps": num_warps, "num_stages": 3})
    ptx = built.asm["ptx"]
    return {
        "kernel": function.__name__,
        "element": element,
        "head_dim": head_dim,
        "rows": rows,
        "splits": splits,
        "page": page,
        "shared_bytes": built.metadata.shared,
        "async_16_byte_loads": len(re.findall(r"cp\.async\.cg\.shared\.global.*0x10", ptx)),
        **_assemble(ptx),
    }


def _assemble(ptx: str) -> dict:
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "kernel.ptx"
        source.write_text(ptx)
        command = [folder / "ptxas", "-v", "--gpu-name=sm_90a", source, "-o", f"{source}.cubin"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    registers = re.search(r"Used (\d+) registers", said)
    assert spills
    assert registers
    return {
        "registers": int(registers[1]),
        "spilled_bytes": int(spills[1]) + int(spills[2]),
    }


if __name__ == "__main__":
    cases = [
        (kernel.attend, "bf16", 128, DECODE_ROWS, 8, 16),
        (kernel.attend, "bf16", 128, DECODE_ROWS, 1, 0),
        (kernel.attend, "bf16", 128, PREFILL_ROWS, 1, 16),
        (kernel.attend, "bf16", 128, PREFILL_ROWS, 1, 0),
        (kernel.attend, "bf16", 128, PREFILL_ROWS, 4, 16),
        (kernel.attend, "bf16", 128, DECODE_ROWS, 8, 16, True),
        (kernel.attend, "bf16", 128, PREFILL_ROWS, 1, 16, True),
        (kernel.attend, "fp16", 64, PREFILL_ROWS, 1, 16),
        (kernel.attend, "fp32", 128, DECODE_ROWS, 1, 16),
        (fused.rotate_write, "bf16", 128, DECODE_ROWS, 1, 16),
        (fused.rotate_write, "bf16", 128, DECODE_ROWS, 1, 0),
        (fused.rotate_write, "fp32", 128, DECODE_ROWS, 1, 16),
        (fused.add_norm, "bf16", 128, DECODE_ROWS, 1, 0),
        (fused.add_norm, "bf16", 128, DECODE_ROWS, 2, 0),
        (fused.add_norm, "fp32", 128, DECODE_ROWS, 2, 0),
        (fused.gate, "bf16", 128, DECODE_ROWS, 1, 0),
        (fused.narrow, "bf16", 128, DECODE_ROWS, 1, 0),
        (kernel.combine, "bf16", 128, DECODE_ROWS, 8, 16),
        (kernel.combine, "bf16", 128, PREFILL_ROWS, 32, 16),
    ]
    json.dump([compile_for(*case) for case in cases], sys.stdout)
