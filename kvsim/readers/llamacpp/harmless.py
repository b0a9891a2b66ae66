"""Patterns of llama-server log lines that contain nothing relevant to a scenario."""

import re

HARMLESS = tuple(
    re.compile(pattern)
    for pattern in (
        r"llama_model_loader: (?:- |Dumping|loaded meta|additional)|print_info: ",
        r"^llm_load_print_meta",
        r"^load: |^llm_load_vocab|^llama_init_from_model|^common_init|^system_info|^main: |^init: ",
        r"^load_tensors: |llm_load_tensors: (?:ggml|offload)|^ggml_|^get_memory_info|^load_backend",
        r"^llama_params_fit|^common_memory_breakdown|^warming up|warming up the model",
        r"^llama_context: |^llama_new_context_with_model: |compute buffer size",
        r"graph (?:nodes|splits)",
        r"^llama_kv_cache(?:_unified)?(?:_iswa)?: |^sched_reserve|^set_abort|^~llama",
        r"^slot |^srv |^que |^res |request: (?:GET|POST)|done_getting_tensors|^print_timing",
        r"^HTTP server|^server (?:is|listening)|^build_info|^update_slots|chat template|^\.+$",
        r"^\s*(?:total|prompt eval|eval) time|^srv_|^cmn |^log_server|^launch_slot|INFO \[ ",
    )
)
