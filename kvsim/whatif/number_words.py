"""Names of summary.json's numbers in words: `mean end-to-end time` for `e2e_s.mean`."""

_NUMBERS = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "itl_s": "inter-token latency",
    "e2e_s": "end-to-end time",
    "queue_s": "time in the queue",
    "preemptions": "number of preemptions",
    "recomputed_tokens": "number of tokens computed again",
    "requests.rejected": "number of refused requests",
    "requests_per_s": "rate of finished requests",
    "output_tokens_per_s": "rate of output tokens",
}
_STATISTICS = {"mean": "mean", "p50": "median"}


def in_words(name: str) -> str:
    """The words for a dotted name; the name itself if it has none."""
    if name in _NUMBERS:
        return _NUMBERS[name]
    number, _, statistic = name.rpartition(".")
    if number not in _NUMBERS:
        return name
    return f"{_STATISTICS.get(statistic, statistic)} {_NUMBERS[number]}"
