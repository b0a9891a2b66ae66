"""Read torch's memory use from a file: a snapshot, `memory_stats()` as JSON, or a log."""

from pathlib import Path
from typing import NamedTuple

from kvsim.interchange.torch_snapshot.ledger import SnapshotLedger
from kvsim.interchange.torch_snapshot.messages import SIGN, failures_of
from kvsim.interchange.torch_snapshot.out_of_memory import OutOfMemory
from kvsim.interchange.torch_snapshot.reader import last_failures, ledgers, parse_snapshot
from kvsim.interchange.torch_snapshot.stats import ledger_of_stats
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from kvsim.plumbing.reading.json_text import parse_object

PICKLE = b"\x80"


class TorchMemory(NamedTuple):
    """ledgers has one entry per device. failures has failed requests; of a snapshot only the last
    of each device.
    """

    ledgers: list[SnapshotLedger]
    failures: list[OutOfMemory]


def read_torch_memory(path: Path) -> TorchMemory:
    """Read a file with torch's memory use, without running code in it; InputError if it
    has none.
    """
    content = read_bytes(path)
    if content.lstrip().startswith(b"{"):
        return TorchMemory([ledger_of_stats(parse_object(content, str(path)), str(path))], [])
    if not content.startswith(PICKLE) and SIGN.encode() in content:
        failures = failures_of(content.decode("utf-8", "replace"))
        if not failures:
            raise InputError(
                "no out-of-memory error of torch can be read", where=str(path),
                remedy="give the log with the whole message",
            )  # fmt: skip
        return TorchMemory([], failures)
    snapshot = parse_snapshot(content, path)
    found = ledgers(snapshot)
    return TorchMemory(found, last_failures(snapshot, found))
