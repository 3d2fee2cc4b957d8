"""Copies of images that are shifted, bent and mirrored, as a hand or a camera might have."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional

# A bend is drawn at so many points on a side and runs smoothly between them.
POINTS = 4


def distorted(
    X: Float[Tensor, "n d"],
    image_shape: tuple[int, int, int],
    *,
    shift: float,
    bend: float,
    mirror: bool,
    generator: Generator,
) -> Float[Tensor, "n d"]:
    """Each row of pixels seen through a random smooth displacement; what lies outside is border.

    ``shift`` and ``bend`` are standard deviations in pixels: of the image as a whole, and of points
    in it. With ``mirror`` every other image on average is turned left to right.
    """
    n, (height, width, channels) = len(X), image_shape

    def draw(*shape: int) -> Tensor:  # on the host: every device gets the same copies
        return torch.randn(n, *shape, generator=generator).to(X.device)

    points = bend * draw(2, POINTS, POINTS)
    field = functional.interpolate(points, (height, width), mode="bicubic", align_corners=True)
    field = field + shift * draw(2, 1, 1)
    side = torch.where(draw(1, 1) < 0, -1.0, 1.0) if mirror else 1.0
    columns = side * torch.linspace(-1, 1, width, device=X.device)
    rows = torch.linspace(-1, 1, height, device=X.device)[:, None]
    grid = torch.stack(
        [
            columns + field[:, 0] * (2 / max(width - 1, 1)),
            rows + field[:, 1] * (2 / max(height - 1, 1)),
        ],
        dim=-1,
    )
    images = X.float().view(n, height, width, channels).permute(0, 3, 1, 2)
    seen = functional.grid_sample(images, grid, padding_mode="border", align_corners=True)
    return seen.permute(0, 2, 3, 1).reshape(n, -1)
