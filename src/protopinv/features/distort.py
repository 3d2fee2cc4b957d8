"""Copies of images that are shifted, bent and mirrored, as a hand or a camera might have."""

import torch
from jaxtyping import Float, Shaped
from torch import Generator, Tensor
from torch.nn import functional

# A bend is drawn at so many points on a side and runs smoothly between them.
POINTS = 4


class Distortion:
    """A random smooth displacement for each of ``n`` images; what lies outside is border.

    ``shift`` and ``bend`` are standard deviations in pixels: of the image as a whole, and of points
    in it. With ``mirror`` every other image on average is turned left to right. All is drawn on the
    host and at once, so that neither the device nor the size of a piece of rows matters.
    """

    def __init__(
        self,
        n: int,
        image_shape: tuple[int, int, int],
        *,
        shift: float,
        bend: float,
        mirror: bool,
        generator: Generator,
    ) -> None:
        self._shape = image_shape
        self._points = bend * torch.randn(n, 2, POINTS, POINTS, generator=generator)
        self._shifts = shift * torch.randn(n, 2, 1, 1, generator=generator)
        turned = torch.rand(n, 1, 1, generator=generator) < 0.5
        self._sides = torch.where(turned, -1.0, 1.0) if mirror else torch.ones(n, 1, 1)

    def __call__(self, X: Shaped[Tensor, "n d"], start: int = 0) -> Float[Tensor, "n d"]:
        """Rows of pixels of any number type; ``start`` is the number of the first."""
        rows = slice(start, start + len(X))
        height, width, channels = self._shape
        points, shifts, sides = (
            drawn[rows].to(X.device) for drawn in (self._points, self._shifts, self._sides)
        )
        field = functional.interpolate(points, (height, width), mode="bicubic", align_corners=True)
        field = field + shifts
        across = sides * torch.linspace(-1, 1, width, device=X.device)
        down = torch.linspace(-1, 1, height, device=X.device)[:, None]
        grid = torch.stack(
            [
                across + field[:, 0] * (2 / max(width - 1, 1)),
                down + field[:, 1] * (2 / max(height - 1, 1)),
            ],
            dim=-1,
        )
        images = X.float().view(len(X), height, width, channels).permute(0, 3, 1, 2)
        seen = functional.grid_sample(images, grid, padding_mode="border", align_corners=True)
        return seen.permute(0, 2, 3, 1).reshape(len(X), -1)
