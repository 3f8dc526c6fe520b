"""Random views of images, on the device: functions of a key and one image [H, W, C] in [0, 1].

`rotated` is for grey images, `recoloured` for colour ones; `batch_view` maps either over a batch.

Notes:
  These are FedLSR's augmentations (its published notebook), which draws once per batch and after the inputs
  are normalised; clamping to [0, 1] then damages colours. Here each image has its own draw, before the model
  normalises, so what a rotation uncovers is black. Brightness, contrast, saturation and hue change in this
  order, where torchvision's `ColorJitter` draws the order too.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp

from fedeba_jax.types import Key, Scalar

LUMA = (0.2989, 0.587, 0.114)
Views = Literal["auto", "rotated", "recoloured", "same"]


def batch_view(key: Key, x: jax.Array, views: Views = "auto", per_batch: bool = False) -> jax.Array:
    """A random view of each image of a batch.

    Args:
      key: of the draws.
      x: images [B, H, W, C] in [0, 1].
      views: "rotated", "recoloured" or "same" (x itself); "auto" rotates grey images and recolours others.
      per_batch: one draw for the whole batch instead of one per image.
    """
    if views == "same":
        return x
    if x.ndim != 4 or x.shape[-1] not in (1, 3) or (views == "recoloured" and x.shape[-1] != 3):
        raise ValueError(f"x has shape {x.shape}, of which there is no {views} view; give images [B, H, W, 1 or 3]")
    one = recoloured if views == "recoloured" or (views == "auto" and x.shape[-1] == 3) else rotated
    keys = jnp.broadcast_to(key, x.shape[:1]) if per_batch else jax.random.split(key, x.shape[0])
    return jax.vmap(one)(keys, x)


def rotated(key: Key, x: jax.Array, degrees: float = 30.0) -> jax.Array:
    """x turned by an angle ~ U(-degrees, degrees)."""
    return rotate(x, jax.random.uniform(key, (), x.dtype, -degrees, degrees))


def recoloured(key: Key, x: jax.Array) -> jax.Array:
    """Flipped left to right (half of all), colours changed (80 %), then grey (20 %).

    Brightness, contrast and saturation take factors ~ U(0.2, 1.8), the hue turns by U(-0.2, 0.2).
    """
    flip, change, fade, *factors, turn = jax.random.uniform(key, (7,), x.dtype)
    x = jnp.where(flip < 0.5, x[:, ::-1], x)
    brightness, contrast, saturation = (0.2 + 1.6 * u for u in factors)
    planes = jnp.moveaxis(x, -1, 0)  # sums over a last axis of 3 are slow on CPUs
    planes = jnp.where(change < 0.8, jitter(planes, brightness, contrast, saturation, 0.4 * turn - 0.2), planes)
    return jnp.moveaxis(jnp.where(fade < 0.2, grey(planes)[None], planes), 0, -1)


def rotate(x: jax.Array, degrees: Scalar) -> jax.Array:
    """x turned counter-clockwise about its centre: nearest pixel, black where there is none, same size.

    Inverse mapping: the pixel at (row, column) from the centre shows what was at
    (cos row + sin column, cos column - sin row).
    """
    height, width, _ = x.shape
    angle = jnp.asarray(degrees, x.dtype) * (math.pi / 180)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    middle = (height - 1) / 2, (width - 1) / 2
    row = (jnp.arange(height, dtype=x.dtype) - middle[0])[:, None]
    column = (jnp.arange(width, dtype=x.dtype) - middle[1])[None, :]
    source_row = jnp.round(cos * row + sin * column + middle[0]).astype(jnp.int32)
    source_column = jnp.round(cos * column - sin * row + middle[1]).astype(jnp.int32)
    inside = (source_row >= 0) & (source_row < height) & (source_column >= 0) & (source_column < width)
    place = jnp.where(inside, source_row * width + source_column, height * width)
    return x.reshape(height * width, -1).at[place].get(mode="fill", fill_value=0)


def jitter(planes: jax.Array, brightness: Scalar, contrast: Scalar, saturation: Scalar, turn: Scalar) -> jax.Array:
    """Colours [3, H, W] changed by three factors (1: not) and a turn of the hue, in [0, 1] after each step."""
    planes = jnp.clip(brightness * planes, 0, 1)
    planes = _away_from(grey(planes).mean(), planes, contrast)
    planes = _away_from(grey(planes)[None], planes, saturation)
    return turn_hue(planes, turn)


def grey(planes: jax.Array) -> jax.Array:
    """The luma [H, W] of colours [3, H, W]."""
    red, green, blue = planes
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def turn_hue(planes: jax.Array, turn: Scalar) -> jax.Array:
    """Colours [3, H, W] with the hue moved by `turn` (of the whole circle), at their own saturation and value."""
    red, green, blue = planes
    value, chroma = planes.max(0), planes.max(0) - planes.min(0)
    step = jnp.where(chroma > 0, chroma, 1)
    sixths = jnp.where(
        value == red,
        (green - blue) / step,
        jnp.where(value == green, 2 + (blue - red) / step, 4 + (red - green) / step),
    )
    place = jnp.stack([sixths + 6 * turn + offset for offset in (5, 3, 1)])
    place -= 6 * jnp.floor(place / 6)
    return value[None] - chroma[None] * jnp.clip(jnp.minimum(place, 4 - place), 0, 1)


def _away_from(anchor: jax.Array, planes: jax.Array, factor: Scalar) -> jax.Array:
    return jnp.clip(anchor + factor * (planes - anchor), 0, 1)
