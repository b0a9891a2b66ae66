"""LMCache's lookup hashes: JSON lines, one hash for each full chunk of a prompt.

They tell what prompts share and when they came, and nothing of the answers: output lengths have to
come from another source, which names the same requests or lists them in the same order.
"""

from pathlib import Path

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from kvsim.readers.description import Description, Requests, Settings, SourceRequest
from kvsim.readers.parsing import fields
from kvsim.readers.parsing.block_ids import SmallIds
from kvsim.readers.parsing.json_lines import numbered
from kvsim.readers.reader import CLIENT, MOST_BYTES, SERVER, STREAM, Sniffed, Source

_PATTERN = "lookup_hashes_*.jsonl*"


class LMCacheLookup(Source):
    """One file, or the folder of all files of a run."""

    rank = CLIENT
    what = "LMCache's lookup hashes"
    gives = SERVER | STREAM

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By the keys of a lookup."""
        if source.is_folder:
            return any(source.path.glob(_PATTERN))
        return {"chunk_hashes", "chunk_size", "seq_len"} <= source.first_record().keys()

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """A request a lookup, the first of each request."""
        files = sorted(source.path.glob(_PATTERN)) if source.is_folder else [source.path]
        rows: dict[str, SourceRequest] = {}
        ids = SmallIds()
        sizes: set[int] = set()
        model: str | None = None
        for path in files:
            model = _take(path, rows, ids, sizes) or model
        if len(sizes) > 1:
            raise InputError("chunks of several sizes", where=source.name, value=sorted(sizes))
        ordered = sorted(rows.values(), key=lambda row: row.arrival_ns or 0)
        return Description(
            Settings.parse({"model": model}, source.name),
            Requests(tuple(ordered), "unix", next(iter(sizes), None)) if rows else None,
        )


def _take(path: Path, rows: dict[str, SourceRequest], ids: SmallIds, sizes: set[int]) -> str | None:
    model = None
    for where, record in numbered(read_bytes(path, MOST_BYTES), path.name):
        size = fields.tokens(record.get("chunk_size"), f"{where}: chunk_size")
        prompt = fields.tokens(record.get("seq_len"), f"{where}: seq_len")
        if not size or not prompt:
            raise InputError("a lookup without its lengths", where=where)
        sizes.add(size)
        hashes = fields.rows(record.get("chunk_hashes"), f"{where}: chunk_hashes")
        name = fields.text(record.get("request_id")) or where
        model = fields.text(record.get("model_name")) or model
        rows.setdefault(
            name,
            SourceRequest(
                name,
                fields.nanoseconds(record.get("timestamp"), f"{where}: timestamp"),
                prompt,
                hash_ids=ids.of(hashes, where)[: prompt // size],
            ),
        )
    return model
