"""A scrape of a vLLM server's /metrics; `vllm:cache_config_info` gives the actual KV pool."""

import re

from kvsim.readers.description import Description, Scrape, transfer_notes
from kvsim.readers.parsing.prometheus import metrics, started_s
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, Sniffed, Source
from kvsim.readers.vllm.metric_names import (
    HARMLESS,
    figures_from,
    settings_from,
    speculation_from,
    sums_of,
    take_names,
)

_LINE = re.compile(rb"^vllm:\w", re.MULTILINE)


class VllmMetricsScrape(Source):
    """Prometheus text with vLLM's names."""

    rank = ENGINE_ITSELF
    what = "a scrape of /metrics"
    gives = SERVER | MEASURED
    harmless = HARMLESS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the text by a line that begins with vLLM's prefix."""
        return source.document is None and (
            source.holds("# HELP vllm:", "# TYPE vllm:") or _LINE.search(source.data) is not None
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The cache configuration, and the figures since the server started."""
        samples = list(metrics(source.string(), source.name, source.ledger))
        take_names(source.ledger, samples)
        settings, figures = settings_from(samples, source.name), figures_from(samples)
        notes = [*transfer_notes(figures), *_draft_notes(figures)]
        scrape = Scrape(started_s(samples), sums_of(samples))
        return Description(settings, measured=figures, notes=tuple(notes), scrape=scrape)


def _draft_notes(figures: dict[str, float]) -> list[str]:
    """Notes on speculative decoding that only counters show; no metric gives the drafter."""
    said = speculation_from(figures)
    if not said:
        return []
    return [
        f"{figures['drafts']:,.0f} drafts of {said['num_speculative_tokens']} tokens, of which "
        f"{said['acceptance_rate']:.0%} were accepted: no metric names the drafter; the command "
        "line does"
    ]
