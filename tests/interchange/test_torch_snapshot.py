"""Torch snapshots: what is written opens in torch's own viewer, what is read is not trusted."""

import json
import os
import pickle
import pickletools

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from support.torch_replay import Levels, Operation, operations_of, replay
from typer.testing import CliRunner

from kvsim.commands.snapshot import snapshot as snapshot_command
from kvsim.interchange.torch_snapshot.reader import ledgers, read_snapshot
from kvsim.interchange.torch_snapshot.recorder import SnapshotRecorder
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory import ALLOCATORS
from kvsim.memory.allocator import Demand
from kvsim.memory.arena.buddy import BuddyArena
from kvsim.memory.arena.first_fit import FirstFitArena
from kvsim.memory.arena.torch_arena import TorchArena
from kvsim.memory.arena.torch_caching import TorchCachingArena
from kvsim.memory.arena.torch_expandable import ExpandableArena
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import MIB
from kvsim.request import Request
from kvsim.sequence import Sequence

# The opcodes torch/utils/viz/MemoryViz.js knows, by pickletools' names.
VIEWER_OPCODES = {
    *("PROTO", "FRAME", "MEMOIZE", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT"),
    *("BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINGET"),
    *("LONG_BINGET", "BINPUT", "LONG_BINPUT", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE"),
    *("TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT", "APPEND", "APPENDS", "SETITEM", "SETITEMS"),
}
SIZES = st.sampled_from([700, 300_000, MIB + 1, 7 * MIB, 11 * MIB, 30 * MIB])
OPS = st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 50)), max_size=40)


def churn(arena, ops):
    """Random allocations and frees; the sizes of what lives at the end, by address."""
    live = {}
    for allocate, size, pick in ops:
        if allocate or not live:
            placed = arena.allocate(size, f"request-{pick}")
            if placed:
                live[placed.address] = size
        else:
            address = sorted(live)[pick % len(live)]
            del live[address]
            arena.free(address)
    return live


def written(recorder, folder):
    path = folder / "snapshot.pickle"
    recorder.write(path)
    assert os.listdir(folder) == [path.name]
    return path


@pytest.mark.parametrize(
    "arena_of",
    [
        lambda: TorchCachingArena(90 * MIB + 7),
        lambda: ExpandableArena(90 * MIB),
        lambda: FirstFitArena(90 * MIB + 77, 1000),
        lambda: BuddyArena(90 * MIB, 4096, 9000),
    ],
    ids=["caching", "expandable", "first-fit", "buddy"],
)
@given(ops=OPS)
@settings(max_examples=25, deadline=None)
def test_recorded_snapshot_equals_the_arena_and_torch_can_read_it(arena_of, ops, tmp_path_factory):
    viz = pytest.importorskip("torch.cuda._memory_viz")
    arena = arena_of()
    recorder = SnapshotRecorder(arena)
    live = churn(arena, ops)
    path = written(recorder, tmp_path_factory.mktemp("snapshot"))
    found = ledgers(read_snapshot(path))
    held = sum(size for _, size in arena.live())
    on_torch = isinstance(arena, TorchArena)
    reserved = arena.reserved_bytes if on_torch else arena.capacity_bytes
    if not reserved:
        assert not found
        return
    (ledger,) = found
    assert (ledger.requested, ledger.allocated) == (sum(live.values()), held)
    assert (ledger.reserved, ledger.awaiting_free) == (reserved, 0)

    data = pickle.loads(path.read_bytes())
    for text in (
        viz.segsum(data),
        viz.trace(data),
        viz.memory(data, format_flamegraph=str),
        viz.segments(data, format_flamegraph=str),
    ):
        assert text
    for plot in (viz.trace_plot, viz.segment_plot):
        assert "snapshot.pickle" in plot(data)
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())}
    assert opcodes <= VIEWER_OPCODES


@given(ops=OPS)
@settings(max_examples=50, deadline=None)
def test_replayed_torch_trace_reproduces_blocks_and_byte_counts(ops, tmp_path_factory):
    arena = TorchCachingArena(100 * MIB)
    recorder = SnapshotRecorder(arena)
    live = churn(arena, ops)
    snapshot = read_snapshot(written(recorder, tmp_path_factory.mktemp("snapshot")))
    operations = operations_of(snapshot.device_traces[0])
    again = TorchCachingArena(100 * MIB)
    levels = list(replay(operations, again))
    assert again.blocks() == arena.blocks()
    if levels:
        held = sum(size for _, size in arena.live())
        assert levels[-1] == Levels(sum(live.values()), held, arena.reserved_bytes)
        (ledger, *_) = ledgers(snapshot) or [None]
        peak = max(level.requested for level in levels)
        assert ledger is None or ledger.peak_requested == peak


def test_torch_replay_of_impossible_operations_is_refused():
    def run(*operations):
        return list(replay(operations, TorchCachingArena(30 * MIB)))

    assert run(Operation("alloc", 1, 600), Operation("free", 1)) == [
        Levels(600, 1024, 2 * MIB),
        Levels(0, 0, 2 * MIB),
    ]
    with pytest.raises(InputError, match="operation 1: out of memory; got 31,457,280 bytes"):
        run(Operation("alloc", 1, 600), Operation("alloc", 2, 30 * MIB))
    with pytest.raises(InputError, match="operation 0: frees what does not live"):
        run(Operation("free", 1))
    with pytest.raises(InputError, match="operation 1: allocates what lives already"):
        run(Operation("alloc", 1, 600), Operation("alloc", 1, 600))


def test_snapshot_trace_of_doubling_regions_has_owners_and_times(tmp_path):
    layout = KVLayout((KVGroup("full", 2, 4096),))
    options = ALLOCATORS.get("doubling").parse(
        {"initial_tokens": 16, "extend_in_place": True}, "allocator"
    )
    allocator = options.build(MemorySpec(200 * 4096, layout, 128, 10**12))
    recorder = SnapshotRecorder(allocator.arena)
    seq = Sequence(Request("chat-7", 0, 10, 50), 0)
    assert allocator.admit(seq, Demand(10, 10))
    recorder.time_us = 55
    assert allocator.extend(seq, 17)
    trace = recorder.snapshot()["device_traces"][0]
    assert [(entry["action"], entry["size"] // 4096, entry["time_us"]) for entry in trace] == [
        ("segment_alloc", 200, 0),
        ("alloc", 16, 0),
        ("free_requested", 16, 55),  # extended in place: gone, and back larger
        ("free_completed", 16, 55),
        ("alloc", 32, 55),
    ]
    assert {entry["frames"][0]["name"] for entry in trace[1:]} == {"chat-7"}


def test_undone_allocations_are_not_in_the_snapshot_trace():
    layout = KVLayout((KVGroup("full", 4, 4096),))
    options = ALLOCATORS.get("concatenation").parse({"placement": "first-fit"}, "allocator")
    allocator = options.build(MemorySpec(53 * 4096, layout, 128, 10**12))
    recorder = SnapshotRecorder(allocator.arena)
    seq = Sequence(Request("a", 0, 50, 5), 0)
    assert allocator.admit(seq, Demand(50, 50))
    before = recorder.snapshot()
    allocator.arena.allocate(1)
    after = recorder.snapshot()
    assert not allocator.extend(seq, 51)
    assert recorder.snapshot() == after
    assert len(after["device_traces"][0]) == len(before["device_traces"][0]) + 1
    allocator.release(seq)
    assert recorder.snapshot()["segments"][0]["requested_size"] == 1


class Hostile:
    def __reduce__(self):
        return os.system, ("exit 1",)


def block(size, state="inactive", requested_size=0):
    return {"size": size, "state": state, "requested_size": requested_size}


def segment(address=0, size=10, blocks=None, **fields):
    return {
        "address": address,
        "total_size": size,
        "blocks": [block(size)] if blocks is None else blocks,
        **fields,
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"segments": [Hostile()]}), r"names \w+.system; a snapshot names nothing"),
        (pickle.dumps({"segments": {1, 2}}, protocol=2), "names "),
        (b"not a pickle", "not a torch memory snapshot"),
        (b"", "not a torch memory snapshot"),
        (b"\x80\x02K\x05r\xff\xff\xff\x7f.", "keeps a value as number 2,147,483,647"),
        (b"\x80\x05\x96" + b"\xff" * 8 + b"xx.", "not a torch memory snapshot"),
        (pickle.dumps({"segments": bytearray(5)}, protocol=5), "holds a buffer"),
        (pickle.dumps({"segments": []})[:-3], "not a torch memory snapshot"),
        (pickle.dumps(7), "not a table"),
        (pickle.dumps({"device_traces": []}), "segments: required key is missing"),
        (pickle.dumps([segment(size="10")]), r"segments.0.total_size: .* got 10"),
        (pickle.dumps([segment(blocks=[block(9)])]), "do not fill it; got 9; limit 10"),
        (pickle.dumps([segment(blocks=[block(10, "gone")])]), "blocks.0.state"),
        (pickle.dumps([segment(), segment(address=9)]), "segment at 0x9: overlaps"),
        (
            pickle.dumps([segment(blocks=[block(10, "active_allocated", 11)])]),
            "smaller than what was asked for; got 10; limit 11",
        ),
    ],
)
def test_malicious_or_damaged_snapshot_is_a_one_line_error(content, message, tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_snapshot(path)
    assert "\n" not in str(caught.value)


def test_missing_snapshot_file_is_a_one_line_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file: cannot write; got (Not a directory|File exists)"):
        SnapshotRecorder(FirstFitArena(10)).write(tmp_path / "file/s")
    with pytest.raises(InputError, match=r"nowhere\.pickle: cannot read it: No such file"):
        read_snapshot(tmp_path / "nowhere.pickle")


def test_snapshot_command_prints_every_device(tmp_path):
    """Two devices; one block waits for another stream, under either of its names."""
    data = {
        "segments": [
            segment(0, 4096, [block(1024, "active_allocated", 600), block(3072)]),
            segment(8192, 2048),
            segment(
                0,
                1024,
                [block(512, "active_pending_free", 512), block(512, "active_awaiting_free", 512)],
                device=1,
            ),
        ],
        "device_traces": [
            [
                {"action": "alloc", "addr": 64, "size": 5000, "time_us": 1, "frames": []},
                {"action": "free_requested", "addr": 64, "size": 5000},
                {"action": "free_completed", "addr": 64, "size": 5000},
                {"action": "oom", "size": 10**9, "device_free": 5},
            ]
        ],
    }
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(data))
    app = typer.Typer()
    app.command()(snapshot_command)
    answer = CliRunner().invoke(app, [str(path), "--json"])
    first, second = json.loads(answer.output)["devices"]
    assert first == {
        "device": 0,
        "segments": 2,
        "requested": 600,
        "rounding": 424,
        "awaiting_free": 0,
        "split": 3072,
        "whole": 2048,
        "largest_free": 3072,
        "peak_requested": 5600,
        "allocated": 1024,
        "reserved": 6144,
        "external": 5120,
    }
    assert (second["awaiting_free"], second["reserved"]) == (1024, 1024)
    table = CliRunner().invoke(app, [str(path)])
    assert table.exit_code == 0
    assert "3,072" in table.output
