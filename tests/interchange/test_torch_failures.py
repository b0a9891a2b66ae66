"""How much of an out-of-memory error is fragmentation: from snapshots, memory_stats() and logs."""

import json
import pickle

import pytest
import typer
from typer.testing import CliRunner

from kvsim.commands.snapshot import snapshot as snapshot_command
from kvsim.interchange.torch_snapshot.messages import failures_of
from kvsim.interchange.torch_snapshot.out_of_memory import OutOfMemory
from kvsim.interchange.torch_snapshot.reader import last_failures, ledgers, parse_snapshot
from kvsim.interchange.torch_snapshot.recorder import SnapshotRecorder
from kvsim.interchange.torch_snapshot.torch_memory import read_torch_memory
from kvsim.memory.arena.torch_caching import TorchCachingArena
from kvsim.memory.arena.torch_expandable import ExpandableArena
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB, MIB

# vllm#37428, vllm#10637 and vllm#12529, with their figures; the last in the words of torch 2.0.
VLLM_37428 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total "
    "capacity of 19.53 GiB of which 329.87 MiB is free. Of the allocated memory 18.40 GiB is "
    "allocated by PyTorch, and 402.27 MiB is reserved by PyTorch but unallocated. If reserved"
)
VLLM_10637 = (
    "CUDA out of memory. Tried to allocate 524.00 MiB. GPU 1 has a total capacity of 15.77 GiB of "
    "which 137.12 MiB is free. Process 6513 has 15.63 GiB memory in use. Of the allocated memory "
    "13.81 GiB is allocated by PyTorch, with 106.00 MiB allocated in private pools (e.g., CUDA "
    "Graphs), and 121.43 MiB is reserved by PyTorch but unallocated."
)
OLDER = (
    "CUDA out of memory. Tried to allocate 1.16 GiB (GPU 0; 7.75 GiB total capacity; 4.81 GiB "
    "already allocated; 1.17 GiB free; 4.83 GiB reserved in total by PyTorch)"
)
STATS = {
    "requested_bytes.all.current": 600, "requested_bytes.all.peak": 5600,
    "allocated_bytes.all.current": 1024, "active_bytes.all.current": 2048,
    "inactive_split_bytes.all.current": 3072, "reserved_bytes.all.current": 7168,
    "segment.all.current": 2, "num_ooms": 1,
}  # fmt: skip


def run(path, *options):
    app = typer.Typer()
    app.command()(snapshot_command)
    answer = CliRunner().invoke(app, [str(path), *options], env={"COLUMNS": "200"})
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_out_of_memory_messages_of_torch_are_parsed(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(f"INFO start\n{VLLM_37428}\nINFO\n{OLDER}\n{VLLM_10637}\n")
    whole, older, part = read_torch_memory(path).failures
    assert whole == OutOfMemory(
        0, 384 * MIB, round(329.87 * MIB), round(402.27 * MIB), largest_free=None
    )
    assert whole.fragmented == whole.missing == 384 * MIB - round(329.87 * MIB)
    assert (older.missing, older.unused) == (0, round(4.83 * GIB) - round(4.81 * GIB))
    assert (part.device, part.fragmented) == (1, round(121.43 * MIB))
    first, second, third = run(path).splitlines()
    assert "384 MiB were asked for, and the device had 330 MiB free. This is fragmentation" in first
    assert "expandable_segments:True" in first
    assert "That would do" in second
    assert "31.4% of what was missing is fragmentation" in third


def test_memory_stats_give_a_ledger_without_largest_free_block(tmp_path):
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(STATS))
    (ledger,) = read_torch_memory(path).ledgers
    assert (ledger.rounding, ledger.awaiting_free, ledger.split, ledger.whole) == (
        *(424, 1024, 3072, 2048),
    )
    assert (ledger.reserved, ledger.peak_requested, ledger.largest_free) == (7168, 5600, None)
    assert "42.9% of what torch reserved lies free in segments in use" in run(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", r"requested_bytes.all.current: no figure of torch.cuda.memory_stats\(\)"),
        (json.dumps(STATS | {"segment.all.current": True}), "segment.all.current: no figure"),
        (json.dumps(STATS | {"active_bytes.all.current": 9}), "do not add up"),
        ("Tried to allocate 5 GiB. More is not told.", "no out-of-memory error of torch"),
        ("{", "not JSON"),
    ],
)
def test_torch_memory_file_without_figures_is_refused(content, message, tmp_path):
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_torch_memory(path)


def failed(arena):
    """Three segments of 60 MiB come free, three tensors of 24 MiB take two of them. The third goes
    back to the device when 70 MiB do not fit: 60 MiB are free there, and 12 and 36 in the others.
    """
    recorder = SnapshotRecorder(arena)
    for address in [arena.allocate(60 * MIB, str(at)).address for at in range(3)]:
        arena.free(address)
    for at in range(3):
        arena.allocate(24 * MIB, str(at))
    return recorder, arena.allocate(70 * MIB, "more") is None


def at_failure(recorder):
    """As torch leaves it: kvsim's arena takes back the segment when the request fails."""
    data = recorder.snapshot()
    data["segments"] = [each for each in data["segments"] if len(each["blocks"]) > 1]
    return data


def with_failure(recorder, *after):
    data = at_failure(recorder)
    data["device_traces"][0] += [
        {"action": "oom", "size": 10**12, "device_free": 0},
        {"action": "oom", "size": 70 * MIB, "device_free": 60 * MIB},
        *after,
    ]
    return pickle.dumps(data)


@pytest.mark.parametrize(
    ("after", "unused", "largest"),
    [
        ([], 48 * MIB, 36 * MIB),
        # A tensor of 12 MiB went after the failure: its pieces are not those of then.
        ([{"action": "free_requested", "size": 12 * MIB}], 36 * MIB, None),
    ],
)
def test_last_failed_request_of_a_snapshot_has_its_free_memory(after, unused, largest):
    recorder, fails = failed(TorchCachingArena(180 * MIB))
    assert fails
    snapshot = parse_snapshot(with_failure(recorder, *after), "snapshot")
    (found,) = last_failures(snapshot, ledgers(snapshot))
    assert found == OutOfMemory(0, 70 * MIB, 60 * MIB, unused, largest)
    assert found.fragmented == found.missing == 10 * MIB


def test_allocation_that_fails_by_fragmentation_fits_expandable_segments():
    assert not failed(ExpandableArena(180 * MIB))[1]


def test_snapshot_command_prints_a_failed_request(tmp_path):
    recorder, _ = failed(TorchCachingArena(180 * MIB))
    path = tmp_path / "at.pickle"
    path.write_bytes(pickle.dumps(at_failure(recorder)))
    assert "A request above 36.0 MiB, the largest free block" in run(path)
    path.write_bytes(with_failure(recorder))
    assert "48.0 MiB unused in its segments, in pieces of at most 36.0 MiB" in run(path)
    (failure,) = json.loads(run(path, "--json"))["out_of_memory"]
    assert (failure["missing"], failure["fragmented"]) == (10 * MIB, 10 * MIB)


def test_log_without_an_error_has_no_failures():
    assert failures_of("INFO all is well\n") == []
