"""LMCache's lookup hashes: JSON lines with one hash per full chunk of a prompt.

The file shows shared prefixes and arrival times, but nothing about the answers. Output lengths must
come from another source with the same request ids, or with the requests in the same order.
"""

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from kvsim.readers.description import Description, Requests, ServerSettings, SourceRequest
from kvsim.readers.parsing.block_ids import HashedBlocks
from kvsim.readers.parsing.json_lines import numbered
from kvsim.readers.reader import CLIENT, MOST_BYTES, SERVER, STREAM, Sniffed, Source

_PATTERN = "lookup_hashes_*.jsonl*"


class LMCacheLookup(Source):
    """One file of lookups, or a folder with all files of a run."""

    rank = CLIENT
    what = "LMCache's lookup hashes"
    gives = SERVER | STREAM

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the file by the keys of a lookup."""
        if source.is_folder:
            return any(source.path.glob(_PATTERN))
        return {"chunk_hashes", "chunk_size", "seq_len"} <= source.first_record().keys()

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """One request per request id, from its first lookup."""
        files = sorted(source.path.glob(_PATTERN)) if source.is_folder else [source.path]
        rows: dict[str, SourceRequest] = {}
        blocks = HashedBlocks("chunks")
        model: str | None = None
        for path in files:
            for record in numbered(read_bytes(path, MOST_BYTES), path.name, source.ledger):
                size, prompt = record.tokens("chunk_size"), record.tokens("seq_len")
                if not size or not prompt:
                    raise InputError("a lookup without its lengths", where=record.where)
                ids = blocks.ids(record.rows("chunk_hashes"), size, record.where)[: prompt // size]
                name = record.text("request_id") or record.where
                model = record.text("model_name") or model
                arrival = record.nanoseconds("timestamp")
                rows.setdefault(name, SourceRequest(name, arrival, prompt, hash_ids=ids))
        size = blocks.tokens(source.name)
        return Description(
            ServerSettings.parse({"model": model}, source.name),
            Requests.in_order(rows.values(), "unix", size),
        )
