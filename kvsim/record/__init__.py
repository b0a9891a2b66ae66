"""`kvsim record`: what a running server does under a load, as files that other commands read.

recording.py  the whole recording, in order      address.py  HTTP requests to the server, and faults
engines.py    which engine the server runs       prompts.py  token ids or words of a prompt
load.py       requests sent on schedule          reply.py    one streamed answer, with its times
scrapes.py    /metrics every second              bench.py    results in the form of vLLM's benchmark
"""
