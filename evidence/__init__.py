"""Experiments that back kvsim's claims: run by its maintainers in a checkout, not in the wheel.

paper: published figures simulated again. cache: decoding with a KV cache against recomputing.
prove: the random schedules, replays and closed forms that `cache` compares. session: everything
that a rented GPU is used for, in one command. All import kvsim; kvsim imports none of them.
"""
