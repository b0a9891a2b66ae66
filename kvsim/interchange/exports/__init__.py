"""Exports of a run in other tools' formats. Each format is one file, with one line here."""

from kvsim.interchange.exports.export import Export
from kvsim.plumbing.registry import Registry

EXPORTS: Registry[Export] = Registry(
    "export format",
    {
        "vllm-metrics": "kvsim.interchange.exports.vllm_metrics:VllmMetricsExport",
        "openmetrics": "kvsim.interchange.exports.openmetrics:OpenMetrics",
        "vllm-bench": "kvsim.interchange.exports.vllm_bench:VllmBenchExport",
        "aiperf": "kvsim.interchange.exports.aiperf:AIPerfExport",
        "perfetto": "kvsim.interchange.exports.perfetto:Perfetto",
        "vllm-serve": "kvsim.interchange.exports.vllm_serve:VllmServe",
    },
)
