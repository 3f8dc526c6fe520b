"""Convolutions that are fast on each backend, and the kernels that they are made of."""
