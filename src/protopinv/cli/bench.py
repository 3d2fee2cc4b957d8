"""protopinv bench: how fast it is here."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from protopinv.cli.options import AsJson
from protopinv.cli.output import answer, say

bench = typer.Typer(
    help="Measure how fast it is here, and keep every number in a dated record.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

# A record is of a kind of device; which of several GPUs it is, CUDA_VISIBLE_DEVICES says.
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
Seeds = Annotated[int, typer.Option(help="Seeds for each number.")]
Quick = Annotated[bool, typer.Option(help="A smoke run on a few rows: minutes on two cores.")]
Folder = Annotated[Path, typer.Option(help="Where records are kept, and continued.")]
Fresh = Annotated[bool, typer.Option(help="Begin a new record even if one can be continued.")]


@bench.command()
def speed(
    repeats: Annotated[int, typer.Option(help="Repeats of which the median is taken.")] = 7,
    seeds: Seeds = 5,
    scaling: Annotated[
        bool, typer.Option(help="Also how time grows with sizes, and break-even points.")
    ] = True,
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Our times, those of others, and what the machine could do, with the accuracy reached.

    On a GPU: a whole training, a step against an MLP's, a fit from host arrays. On a CPU: an epoch
    against the paper's listing, a race with scikit-learn, memory, start-up. Leave the machine alone
    meanwhile.
    """
    from protopinv.bench.speed import SpeedPlan, measure_speed
    from protopinv.bench.speed_tables import speed_tables
    from protopinv.train.devices import resolve_device

    plan = SpeedPlan(repeats, seeds, scaling, quick)
    place = resolve_device(device).type
    record = measure_speed(plan, device=place, folder=records, fresh=fresh, say=say)
    say(f"record: {record.path}")
    if as_json:
        answer(record.content, as_json=True)
        return
    print("\n".join(speed_tables(record.content)))
