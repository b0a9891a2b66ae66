"""SGLang's answer of /server_info: its arguments after resolution, its version and its KV pool."""

from typing import Any

from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.unread_flags import unread_notes
from kvsim.readers.reader import ENGINE_ITSELF, SERVER, Sniffed, Source
from kvsim.readers.sglang.args import KNOWN, LEFT_OUT, left_out_notes, split_attention, take

POOL = "max_total_num_tokens"
# What `kvsim record` keeps of the answer, which has keys and paths too.
KEPT = (*KNOWN, *LEFT_OUT, "version", POOL)


class SGLangAnswer(Source):
    """An answer of /server_info or /get_server_info, complete or as `kvsim record` stores it."""

    rank = ENGINE_ITSELF
    what = "SGLang's /server_info"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the answer by its keys."""
        return source.has_keys("model_path", "tp_size")

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the arguments, the version, and the KV pool's size in tokens."""
        table = source.object()
        pairs: dict[str, Any] = {
            name: value for name, value in table.items() if name in (*KNOWN, *LEFT_OUT)
        }
        found: dict[str, Any] = {"engine": "sglang"}
        take(found, pairs, source.name)
        split_attention(found, source.name, resolved=True)
        if isinstance(table.get("version"), str):
            found["engine_version"] = table["version"]
        if isinstance(table.get(POOL), int) and table[POOL] > 0:
            found["kv_cache_tokens"] = table[POOL]
        unset: tuple[Any, ...] = (None, False, "", "auto", [], {})
        unread = [key for key, value in table.items() if key not in KEPT and value not in unset]
        notes = [*left_out_notes(pairs), *unread_notes(unread, KNOWN)]
        return Description(ServerSettings.parse(found, source.name), notes=tuple(notes))
