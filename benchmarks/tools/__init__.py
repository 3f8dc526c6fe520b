"""What the benchmarks share: the work, its limit, timing, tables, processes of peers."""
