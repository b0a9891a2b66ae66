"""SGLang's schedulers where prompts are computed here and decoded there (0.5.23, disaggregation/
prefill.py, decode.py, decode_schedule_batch_mixin.py).
"""
