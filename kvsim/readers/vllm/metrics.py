"""A scrape of a vLLM server's /metrics: `vllm:cache_config_info` is the pool as it really is."""

from kvsim.readers.description import Description, transfer_notes
from kvsim.readers.parsing.prometheus import metrics
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, Sniffed, Source
from kvsim.readers.vllm.metric_names import figures_from, settings_from


class VllmMetricsScrape(Source):
    """Prometheus text with vLLM's names."""

    rank = ENGINE_ITSELF
    what = "a scrape of /metrics"
    gives = SERVER | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By a line that begins with vLLM's prefix."""
        begins = source.data[:5] == b"vllm:"
        return source.document is None and (
            begins or source.holds("\nvllm:", "# HELP vllm:", "# TYPE vllm:")
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The cache configuration, and the figures since the server started."""
        samples = list(metrics(source.string(), source.name))
        settings, figures = settings_from(samples, source.name), figures_from(samples)
        return Description(settings, measured=figures, notes=transfer_notes(figures))
