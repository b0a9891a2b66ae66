"""Keys of benchmark reports without information for a scenario: derived statistics, names,
versions, the client's own settings.
"""

import re

_STATISTICS = (
    r"(?:std|p\d+(?:[._]\d+)?|min|max|median|mode|count|sum|total_sum|variance|pdf|unit|mean|avg|"
    r"total|successful|errored|incomplete|percentiles|std_dev)"
)
REPORTS = re.compile(
    rf"(?:^|\.){_STATISTICS}$|"
    r"^(?:std|p[\d.]+)_\w+_ms$|(?:^|\.)(?:\w{0,40}throughput\w{0,40}|\w{0,40}goodput\w{0,40}:?|good_request_\w+|"
    r"(?:start|end)_time|benchmark_(?:start|end)_time_unix|benchmark_id|schema_version|"
    r"aiperf_version|tokenizer_id|backend|endpoint_type|label|best_of|rtfx|failed|num_prompts|"
    r"max_output_tokens_per_s|max_concurrent_requests|generated_texts|metadata|run_info|"
    r"was_cancelled|error_summary|telemetry_data|branch_stats|inter_chunk_latency|"
    r"\w{0,40}mismatch\w{0,40}|http_req_\w+|(?:effective|active|total)_\w+|credit_to_start_latency|"
    r"benchmark_duration|decode_duration|e2e_output_token\w*|output_token_count|tokens_in_flight|"
    r"time_to_(?:second_token|first_output_token|last_\w+)\w*|theoretical_\w+|"
    r"time_per_output_token_ms|normalized_\w+|requests_per_second|\w{0,40}tokens_per_\w+|"
    r"request_concurrency|\w{0,40}round_trip\w{0,40}|request_streaming_\w+|total_token_count|"
    r"scheduler_(?:metrics|state)|type_|id_?|run_id|run_index|run_stats|extras|"
    r"(?:cooldown|warmup|rampup)_duration|duration|achieved_rate|schedule_delay|send_duration|"
    r"throughput|request(?:_args)?|response|output|prompts?|error|end_time|scheduler_\w+|status|"
    r"request_end_ns|request_ack_ns|worker_id|record_processor_id|cancellation_time_ns|"
    r"session_num|credit_\w+|system_fingerprint|"
    r"(?:artifacts|datasets|mlflow|network_latency|otel|runtime|server_metrics|gpu_telemetry|"
    r"logging|tokenizer|ui|output|accuracy|wandb|cli_command|random_seed))$"
)
