"""SGLang's scheduler, 0.5.23 (managers/scheduler.py, schedule_policy.py, schedule_batch.py)."""
