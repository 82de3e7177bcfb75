"""The statistics: e-values, e-processes and divergences, functions over arrays that know nothing of gates.

Evidence is an e-value: a number whose mean is at most 1 while the canary is no worse, however often it is read.
Everything here is a function or a small process over numpy arrays, with any number of leading dimensions:
a judge runs one delivery, a simulation runs thousands side by side, with the same code.
"""
