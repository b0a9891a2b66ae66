"""The pool as SGLang 0.5.23 sizes it: a share of the device for weights and KV, the rest headroom.

    device and chunk size -> mem_fraction_static (`fraction`)
                          -> bytes for the pools (`budget`) -> tokens, windows, states (`pools`)
                          -> the lines that the server prints (`start_up`)

Read off the wheel (arg_groups/memory_hook.py, mem_cache/kv_cache_configurator.py,
model_executor/pool_configurator.py); pools of windows and of states were not recorded.
"""
