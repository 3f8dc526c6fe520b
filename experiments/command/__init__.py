"""From the command line to values: flags, tasks, call syntax, grids, and what goes with what."""
