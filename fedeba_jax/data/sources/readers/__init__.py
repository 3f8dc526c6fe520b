"""Readers of files, one family a module: a folder's `Raw`, or None where it holds none of them."""

from fedeba_jax.data.sources.readers.cifar import read_cifar10 as read_cifar10
from fedeba_jax.data.sources.readers.cifar import read_cifar100 as read_cifar100
from fedeba_jax.data.sources.readers.idx import read_idx as read_idx
from fedeba_jax.data.sources.readers.package import read_embedded as read_embedded
from fedeba_jax.data.sources.readers.reddit import read_reddit as read_reddit
from fedeba_jax.data.sources.readers.shakespeare import read_shakespeare_chars as read_shakespeare_chars
from fedeba_jax.data.sources.readers.shakespeare import read_shakespeare_words as read_shakespeare_words
from fedeba_jax.data.sources.readers.tfds import read_tfds as read_tfds
from fedeba_jax.data.sources.readers.tiny_imagenet import read_tiny_imagenet as read_tiny_imagenet
