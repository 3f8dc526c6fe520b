"""The one runner: batches of runs, their programs, folders, checkpoints and progress."""
