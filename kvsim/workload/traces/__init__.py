"""Formats of recorded traces: one module each, registered here by one line each, in the order in
which detection tries them.
"""

from kvsim.plumbing.registry import Registry
from kvsim.workload.traces.format import TraceFormat

TRACE_FORMATS: Registry[TraceFormat] = Registry(
    "trace format",
    {
        "azure": "kvsim.workload.traces.azure:Azure",
        "burstgpt": "kvsim.workload.traces.burstgpt:BurstGPT",
        "splitwise": "kvsim.workload.traces.splitwise:Splitwise",
        "vidur": "kvsim.workload.traces.vidur:Vidur",
        "qwen-bailian": "kvsim.workload.traces.qwen_bailian:QwenBailian",
        "aiperf": "kvsim.workload.traces.aiperf:AIPerfTrace",
        "timed-trace": "kvsim.workload.traces.timed_trace:TimedTrace",
        "mooncake": "kvsim.workload.traces.mooncake:Mooncake",
        "agent-sessions": "kvsim.workload.traces.agent_sessions:AgentSessions",
    },
)
