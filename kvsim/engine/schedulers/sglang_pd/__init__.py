"""SGLang's schedulers under prefill-decode disaggregation (0.5.23, disaggregation/prefill.py,
decode.py, decode_schedule_batch_mixin.py).
"""
