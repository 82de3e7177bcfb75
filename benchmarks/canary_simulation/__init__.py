"""A seeded simulation of thousands of deliveries, judged side by side by tidegate's gate and by its peers."""

import os

# Small matrices by the hundred thousand: threads would wait for each other, tenfold where others want the cores too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
