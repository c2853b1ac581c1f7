"""The size that large photos are worked on at: halved, once, twice or three times, while views still find their pixels.

The rule looks at the size of the image alone, so a photo is reduced alike for every method, model, batch and worker.
A crop of the least size, 8% of a photo of 1000 x 750 pixels, has 245 a side where a model sees 224; local views look
at 512 for such a model. A model of 384 pixels looks at 878, a sixth more than may be left, and sees it enlarged by so
much. Images of a short side below 1,500 pixels are never touched; 12 megapixels of a phone are seen at a quarter of
their sides, which costs a third less than at half.

A JPEG is decoded at the reduced scale, which leaves most of the work of decoding undone. Anything else is decoded and
then averaged, by boxes of as many pixels: a few milliseconds that all later steps win back, and the same photo looks
alike in every format. To the bit a JPEG differs from its own pixels given as an array: by a level or so, only if large.
"""

from __future__ import annotations

from PIL import Image

#: the short side of a reduced image is at least this
LEAST_SIDE = 750
MOST_REDUCED = 8


def scale_of(size: tuple[int, int]) -> int:
    """By how much an image of this width and height is reduced: 1, 2, 4 or 8.

    Example:
        >>> [scale_of(size) for size in ((1499, 9000), (3264, 2448), (4000, 3000), (8160, 6120))]
        [1, 2, 4, 8]
    """
    scale = 1
    while scale < MOST_REDUCED and -(-min(size) // scale) >= 2 * LEAST_SIDE:  # sides are rounded up
        scale *= 2
    return scale


def draft(image: Image.Image) -> None:
    """Have an image that is not decoded yet decoded at its working size, if its decoder can."""
    scale = scale_of(image.size)
    if scale > 1:
        image.draft(None, (image.width // scale, image.height // scale))


def reduced(image: Image.Image) -> Image.Image:
    """An image at its working size; one that is small enough, or reduced already, comes back as it is."""
    scale = scale_of(image.size)
    return image.reduce(scale) if scale > 1 else image
