"""Token ids of simulated contents: different contents have different ids."""

from hashlib import blake2b

from kvsim.sequence import Sequence

MIXER = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: neighbours fall far apart


class VocabTokens:
    """Token ids below `vocab`; equal where the simulator calls tokens equal, else pseudo-random.
    They do not depend on the order in which sequences run.
    """

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._private: dict[str, int] = {}

    def tokens(self, seq: Sequence, start: int, end: int) -> list[int]:
        """Tokens of `seq` from `start` on, before `end`."""
        return [self._token(self._name(seq, position)) for position in range(start, end)]

    def _name(self, seq: Sequence, position: int) -> int:
        """The simulator's id of a token; tokens without an id get one here."""
        output = position - seq.prompt_tokens
        if output >= 0 and seq.output_start is not None:
            return seq.output_start + output
        if output < 0 and seq.prompt_runs is not None:
            for first, length in seq.prompt_runs:
                if position < length:
                    return first + position
                position -= length
        if seq.id not in self._private:
            digest = blake2b(seq.id.encode(), digest_size=8).digest()
            self._private[seq.id] = int.from_bytes(digest)
        return self._private[seq.id] + position

    def _token(self, name: int) -> int:
        return ((name * MIXER & (1 << 64) - 1) >> 32) % self._vocab
