"""What is to be measured where there is a GPU: starts, throughput, misses, a delivery, memory; `benchmarks/gpu.sh`."""
