"""How pictures look without colour: lightness as it is, and as a deuteranope sees it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PySide6.QtGui import QImage

Pixels = npt.NDArray[np.uint32]
Values = npt.NDArray[np.float64]

# Machado, Oliveira, Fernandes 2009: severity 1.0, on linear RGB.
DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
VISIONS = ("grey", "deuteranopia")


def linear_rgb(pixels: Pixels) -> Values:
    """float[..., 3] linear RGB."""
    rgb = np.stack([(pixels >> shift) & 255 for shift in (16, 8, 0)], axis=-1) / 255.0
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lightness(pixels: Pixels, vision: str = "grey") -> Values:
    """CIE L*, 0 to 100."""
    linear = linear_rgb(pixels)
    if vision == "deuteranopia":
        linear = np.clip(linear @ DEUTERANOPIA.T, 0, 1)
    y = linear @ np.array([0.2126, 0.7152, 0.0722])
    return np.where(y > 0.008856, 116 * np.cbrt(y) - 16, 903.3 * y)


def differing_share(first: Values, second: Values) -> float:
    """Share of pixels whose lightness differs by more than 12 of 100."""
    return float(np.mean(np.abs(first - second) > 12))


def pixels_in(image: QImage) -> Pixels:
    """uint32[height, width] of any image."""
    made = image.convertToFormat(QImage.Format.Format_RGB32)
    flat = np.frombuffer(made.constBits(), np.uint32)
    return flat.reshape(made.height(), made.bytesPerLine() // 4)[:, : made.width()].copy()
