"""`kvsim record`: what a running server does under a load, as files that other commands read.

recording.py  all of it, in order               address.py  requests to the server, its faults
engines.py    which engine answers              prompts.py  token ids or words of a prompt
load.py       requests sent at their times      reply.py    one streamed answer, with its times
scrapes.py    /metrics each second              bench.py    the result, as vLLM's benchmark has it
"""
