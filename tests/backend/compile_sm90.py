"""Compile the attention kernel for sm_90 without a GPU; print registers and spills as JSON.

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

from kvsim.backend import kernel
from kvsim.backend.shape import Shape
from kvsim.backend.triton_attention import DECODE_ROWS, PREFILL_ROWS, key_tile

POINTERS = {
    "query": "e",
    "key_base": "e",
    "value_base": "e",
    "result": "e",
    "part": "fp32",
    "part_max": "fp32",
    "part_sum": "fp32",
    "table": "i32",
    "key_offset": "i64",
    "value_offset": "i64",
    "span_begin": "i32",
    "span_new": "i32",
    "span_start": "i32",
    "tile_span": "i32",
    "tile_token": "i32",
}


def compile_attend(element: str, head_dim: int, rows: int, splits: int, page: int) -> dict:
    dtype = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[element]
    shape = Shape(1, 4096, 32, 8, head_dim, 1, 1, dtype)
    constants = {
        "PAGE": page,
        "KV_HEADS": shape.kv_heads,
        "GROUP": shape.group,
        "DIM": head_dim,
        "DIM_PADDED": head_dim,
        "ROWS": rows,
        "KEYS": key_tile(shape),
        "SPLITS": splits,
        "PRECISION": "ieee",
    }
    signature = {name: "*" + (element if kind == "e" else kind) for name, kind in POINTERS.items()}
    signature |= {"scale": "fp32", "query_stride": "i32", "table_width": "i32"}
    signature |= dict.fromkeys(constants, "constexpr")
    names = kernel.attend.arg_names
    # What the launcher finds out by itself: torch's pointers and the strides are multiples of 16.
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]] for name in [*POINTERS, "query_stride"]
    }
    source = ASTSource(
        kernel.attend,
        {name: signature[name] for name in names},
        {(names.index(name),): value for name, value in constants.items()},
        aligned,
    )
    target = GPUTarget("cuda", 90, 32)
    built = triton.compile(source, target=target, options={"num_warps": 4, "num_stages": 3})
    ptx = built.asm["ptx"]
    report = _assemble(ptx)
    return {
        "element": element,
        "head_dim": head_dim,
        "rows": rows,
        "splits": splits,
        "page": page,
        "shared_bytes": built.metadata.shared,
        "async_16_byte_loads": len(re.findall(r"cp\.async\.cg\.shared\.global.*0x10", ptx)),
        **report,
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
        ("bf16", 128, DECODE_ROWS, 8, 16),
        ("bf16", 128, DECODE_ROWS, 1, 0),
        ("bf16", 128, PREFILL_ROWS, 1, 16),
        ("bf16", 128, PREFILL_ROWS, 1, 0),
        ("fp16", 64, PREFILL_ROWS, 1, 16),
        ("fp32", 128, DECODE_ROWS, 1, 16),
    ]
    json.dump([compile_attend(*case) for case in cases], sys.stdout)
