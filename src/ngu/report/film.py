"""Animations: frames in the numbers of one palette, written as a GIF or as a video.

One palette for all frames needs no search for colours in each, and files stay small.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from matplotlib import animation, get_data_path
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ngu.errors import UserError
from ngu.report.results import write_file

Canvas = NDArray[np.uint8]
"""[height, width]: numbers of the palette."""
RGB = NDArray[np.uint8]
"""[..., 3]"""

BLUE, ORANGE, AXIS, PAPER = 10, 11, 12, 16
"""Where the colours that all films share stand in their palettes; from PAPER on, shades of grey up to the ink."""
_GREYS = 24
"""Shades from the paper's white to the ink, for the edges of letters."""
INK = PAPER + _GREYS - 1
MARGIN = 18
TEXT_SIZE = 15

_SECONDS = 16.0
"""An animation takes about so long."""
_LONGEST_FRAME, _SHORTEST_FRAME, _LAST_FRAME = 0.2, 0.06, 2.0


class Film(Protocol):
    """Draws the frames of an episode."""

    palette: RGB
    """[256, 3]"""
    width: int
    height: int

    @property
    def shown(self) -> list[int]:
        """The steps of the episode that have a frame."""
        ...

    def frames(self) -> Iterator[Canvas]:
        """One for each of the steps shown."""
        ...


def shared_palette() -> RGB:
    """[256, 3] RGB: the colours that all films share; the others are black until a film sets them."""
    colours = np.zeros((256, 3), dtype=np.uint8)
    colours[[BLUE, ORANGE, AXIS]] = [(0, 114, 178), (213, 94, 0), (190, 195, 201)]
    ramp = np.linspace(0, 1, _GREYS)[:, None]
    colours[PAPER : PAPER + _GREYS] = np.round(255 + ramp * (np.array([31, 35, 40]) - 255))
    return colours


def evenly(length: int, most: int) -> list[int]:
    """Of the steps 0 to `length` all, or every second (third, ...) if they are more than `most`; always the last."""
    stride = -(-(length + 1) // most)
    return [*range(0, length, stride), length]


@cache
def _font(bold: bool, size: int) -> ImageFont.FreeTypeFont:
    """The font that matplotlib brings along, so that no machine lacks it."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), size)


def write_text(canvas: Canvas, x: int, y: int, text: str, *, bold: bool = False, size: int = TEXT_SIZE) -> None:
    """Writes text with its upper left corner at (x, y)."""
    height, width = canvas.shape
    mask = Image.new("L", (width - x, min(height - y, 2 * size)))
    ImageDraw.Draw(mask).text((0, 0), text, fill=255, font=_font(bold, size))
    shades = np.asarray(mask, dtype=np.uint16) * (_GREYS - 1) // 255
    area = canvas[y : y + shades.shape[0], x:]
    area[shades > 0] = (PAPER + shades[shades > 0]).astype(np.uint8)


def text_width(text: str, *, bold: bool = False, size: int = TEXT_SIZE) -> int:
    """How many pixels wide a text is."""
    return round(_font(bold, size).getlength(text))


def check_name(out: Path) -> None:
    """Refuses a file that no animation can be written to, before it is made."""
    kind = out.suffix.lower()
    if kind not in (".gif", ".mp4"):
        raise UserError(f"{out.name} is neither a GIF nor a video; give a name that ends in .gif or .mp4.")
    if kind == ".mp4" and not animation.FFMpegWriter.isAvailable():
        raise UserError(
            "a video needs ffmpeg, which is not installed here; install it, or give a name that ends in .gif."
        )


def write_film(film: Film, out: Path) -> None:
    """Writes a .gif, or an .mp4 where ffmpeg is installed; see `check_name`."""
    pause = min(max(_SECONDS / len(film.shown), _SHORTEST_FRAME), _LONGEST_FRAME)
    if out.suffix.lower() == ".gif":
        write_file(out, gif(film, pause))
    else:
        _write_video(film, pause, out)


def gif(film: Film, pause: float) -> bytes:
    images = []
    for canvas in film.frames():
        image = Image.fromarray(canvas)
        image.putpalette(film.palette.tobytes())
        images.append(image)
    durations = [round(1000 * pause)] * len(images)
    durations[-1] = round(1000 * _LAST_FRAME)
    with io.BytesIO() as file:
        images[0].save(file, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0)
        return file.getvalue()


def _write_video(film: Film, pause: float, out: Path) -> None:
    writer = animation.FFMpegWriter(fps=round(1 / pause), extra_args=["-pix_fmt", "yuv420p"])
    dpi = 100
    figure = Figure(figsize=(film.width / dpi, film.height / dpi), dpi=dpi)
    frames = film.frames()
    picture = figure.figimage(film.palette[next(frames)])
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with writer.saving(figure, str(out), dpi):
            writer.grab_frame()
            for canvas in frames:
                picture.set_data(film.palette[canvas])
                writer.grab_frame()
            for _ in range(round(_LAST_FRAME / pause)):
                writer.grab_frame()
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another place.") from None
