"""One process, one trial of a model: eager, compiled, or compiled from a saved cache.

Runs on the engine environment's Python and imports nothing but the standard library and torch. Everything that
imports torch does so inside functions: how long that takes is part of a cold start, and is measured.

__main__    job in, result out
subject     the model and its inputs, from a person's factory
run         the order of a trial
key         what decides whether a saved cache may be used
store       the saved cache on disk
measure     latency, memory, torch's own counters
failures    what torch says when it cannot, as one line
"""
