"""How does a drawing become a PNG?

Everything is drawn as strokes with round caps, including letters. Edges are anti-aliased by the distance of a pixel
from the stroke. Uses NumPy and the standard library; needs no font.
"""

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from crescendo.pipeline.logs.figure import BLACK, HEIGHT, WIDTH, Drawing, Label, Position, Stroke
from crescendo.pipeline.logs.letters import ADVANCE, letter

_UNIT = 1.7
"""Pixels per grid unit of a letter."""
_PEN = 1.4
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TRUECOLOUR = 2

Pixels = npt.NDArray[np.float32]


def as_png(drawing: Drawing) -> bytes:
    pixels = np.full((HEIGHT, WIDTH, 3), 255, np.float32)
    for stroke in drawing.strokes:
        _paint(pixels, stroke)
    for label in drawing.labels:
        for positions in _text_strokes(label):
            _paint(pixels, Stroke(positions, BLACK, _PEN))
    return _encoded(np.rint(pixels).astype(np.uint8))


def _paint(pixels: Pixels, stroke: Stroke) -> None:
    positions = stroke.positions if len(stroke.positions) > 1 else stroke.positions * 2
    for start, end in pairwise(positions):
        _paint_segment(pixels, start, end, stroke)


def _paint_segment(pixels: Pixels, start: Position, end: Position, stroke: Stroke) -> None:
    reach = stroke.width / 2 + 1
    # y grows upwards on the canvas and downwards in the file.
    (x0, y0), (x1, y1) = ((x, HEIGHT - y) for x, y in (start, end))
    left, right = (int(np.clip(x, 0, WIDTH)) for x in (min(x0, x1) - reach, max(x0, x1) + reach + 1))
    top, bottom = (int(np.clip(y, 0, HEIGHT)) for y in (min(y0, y1) - reach, max(y0, y1) + reach + 1))
    if left >= right or top >= bottom:
        return
    x = np.arange(left, right, dtype=np.float32)[None, :] + 0.5
    y = np.arange(top, bottom, dtype=np.float32)[:, None] + 0.5
    dx, dy = x1 - x0, y1 - y0
    along = np.clip(((x - x0) * dx + (y - y0) * dy) / ((dx * dx + dy * dy) or 1.0), 0, 1)
    distance = np.hypot(x - x0 - along * dx, y - y0 - along * dy)
    cover = np.clip(stroke.width / 2 + 0.5 - distance, 0, 1)[:, :, None]
    part = pixels[top:bottom, left:right]
    part += cover * (np.array(stroke.colour, np.float32) - part)


def _text_strokes(label: Label) -> Iterator[tuple[Position, ...]]:
    """The strokes of the text, at its position."""
    length = max(len(label.text) * ADVANCE - 2, 0) * _UNIT
    begin = {"start": 0.0, "middle": -length / 2, "end": -length}[label.anchor]
    for number, character in enumerate(label.text):
        for points in letter(character):
            shifted = [(begin + (number * ADVANCE + x) * _UNIT, y * _UNIT) for x, y in points]
            turned = [(-y, x) for x, y in shifted] if label.upright else shifted
            yield tuple((label.x + x, label.y + y) for x, y in turned)


def _encoded(pixels: npt.NDArray[np.uint8]) -> bytes:
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, _TRUECOLOUR, 0, 0, 0)
    # Each row starts with its filter type: 0 for none.
    lines = np.pad(pixels.reshape(HEIGHT, WIDTH * 3), ((0, 0), (1, 0)))
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
