"""One process, one run of a torch module: eager, compiled, or compiled from a saved cache.

Runs on the engine environment's Python and imports nothing but the standard library, torch, and the compile key of
the entrypoint. Everything that imports torch does so inside functions: how long that takes is part of a cold start,
and is measured.

__main__    job in, result out
subject     the model and its inputs, from a person's factory
run         the order of a run, and what it measures: latency, memory, torch's own counters
cache       the saved cache on disk, and what decides whether it may be used
job         what is asked for; what torch says when it cannot, as one line
"""
