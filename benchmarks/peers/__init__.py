"""Other libraries at the same work, each a process of its own: a module here is the worker's side (`protocol`).

Nothing in this package may import fedeba_jax or JAX at the top: each module runs in an environment that holds only
its own library and NumPy (the .txt files beside them, `make bench-envs`).
"""
