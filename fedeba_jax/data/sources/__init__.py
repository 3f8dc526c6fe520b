"""Data sets by name, whatever their source: files, prepared tfds data, the system, package clients."""

from fedeba_jax.data.sources.registry import DATASETS as DATASETS
from fedeba_jax.data.sources.registry import Dataset as Dataset
from fedeba_jax.data.sources.registry import load as load
