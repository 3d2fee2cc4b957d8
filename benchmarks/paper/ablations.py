"""Settings around the recipe: chosen on one split of the training rows, judged on others."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from torch import Tensor

from benchmarks.paper.measures import Extras, cell_of_run
from benchmarks.paper.splits import PARTS, SplitRows, load_rows
from benchmarks.paper.sweeps import SWEEPS, Setting
from benchmarks.plans import require_counts, require_some
from benchmarks.recipes import RECIPES, SHAPE, Parameters
from benchmarks.record import Cell, Record, Records
from benchmarks.tasks import CLASSES, DATASETS
from benchmarks.training import Job, config_of, train_together
from protopinv.diagnose import Trace
from protopinv.errors import ConfigError, TrainingError
from protopinv.kernels import want_kernels
from protopinv.plain import plain
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport

TRACE_EVERY = 10
QUICK: Parameters = {"max_epochs": 4, "warmup_epochs": 1}
CHOOSING = 0  # the split on which choices are made, by its first seed
# What is not in a recipe; the names of cells leave out what is usual.
_DEFAULTS: Parameters = {**asdict(TrainConfig()), "projection": "pca", **SHAPE}


@dataclass(frozen=True)
class AblationPlan:
    """What to measure; everything in it is written into the record."""

    dataset: str
    sweeps: tuple[str, ...] = tuple(SWEEPS)
    splits: int = 3
    seeds: int = 5
    quick: bool = False

    def __post_init__(self) -> None:
        require_some("dataset", (self.dataset,), DATASETS)
        require_some("sweeps", self.sweeps, list(SWEEPS))
        require_counts(self, "splits", "seeds")
        if self.splits > PARTS:
            raise ConfigError(f"splits must be at most {PARTS}. Got {self.splits}. Lower it.")


def measure_ablations(plan: AblationPlan, records: Records, *, device: str) -> Record:
    """Choose on the first split, then train every setting with every seed on the others."""
    want_kernels()
    recipe = RECIPES[plan.dataset]
    rows = load_rows(plan.dataset, quick=plan.quick)
    content = {
        "task": "Chosen on 6,000 held-out training rows, judged on splits that hold out others",
        **asdict(plan),
        "recipe": {**SHAPE, **recipe},
        "overlap": rows.overlap,
    }
    record = records.open("nested", plan.dataset, plan=content, device=device)
    study = Study(plan, record, rows, device)
    chosen = study.choose()
    for split in range(1, plan.splits + 1):
        study.judge(split, chosen)
        record.say(f"{plan.dataset}: split {split} of {plan.splits} is done")
    record.finish()
    return record


@dataclass(frozen=True)
class Run:
    """One training: its configuration, seed and split, and what its cell has besides accuracy."""

    config: TrainConfig
    seed: int
    split: int
    extras: Extras


@dataclass
class Watched:
    """The observer of a run: its first outputs, and a trace."""

    trace: Trace | None
    first: list[Tensor] = field(default_factory=list)

    def __call__(self, report: EpochReport) -> None:
        """Note the outputs one small step after the start, and a diagnosis every few epochs."""
        if report.epoch == 0:
            self.first.append(report.state.member(0).outputs.detach().cpu().clone())
        if self.trace is not None:
            self.trace(report)


@dataclass(frozen=True)
class Study:
    """A plan at work."""

    plan: AblationPlan
    record: Record
    rows: SplitRows
    device: str

    @property
    def recipe(self) -> Parameters:
        """That of the data set."""
        return RECIPES[self.plan.dataset]

    def choose(self) -> dict[str, Parameters]:
        """All changes of every setting, by sweep and label, its choice among them."""
        settings = settings_of(self.plan.sweeps, self.recipe)
        runs = {}
        for setting in settings.values():
            for choice in some_of(setting.choices, quick=self.plan.quick):
                changes = {**setting.changes, **choice}
                key = run_key(self.recipe, changes, CHOOSING, 0)
                runs[key] = self._run(changes, CHOOSING, 0, Extras())
        self.record.cells_of(runs, self._measure)
        return chosen_changes(self.record.cells, settings, self.recipe, quick=self.plan.quick)

    def judge(self, split: int, chosen: Mapping[str, Parameters]) -> None:
        """Every setting with every seed on a split; sweeps share runs, with the extras of all."""
        changes_of: dict[str, tuple[Parameters, int]] = {}
        extras_of: dict[str, set[str]] = {}
        for (place, changes), seed in product(chosen.items(), range(self.plan.seeds)):
            key = run_key(self.recipe, changes, split, seed)
            changes_of[key] = changes, seed
            extras_of.setdefault(key, set()).update(SWEEPS[place.partition("/")[0]].keeps)
        runs = {}
        for key, (changes, seed) in changes_of.items():
            # One run of every setting says enough of gaps, and they take time.
            first = split == 1 and seed == 0 and not self.plan.quick
            extras = Extras(
                curves="curves" in extras_of[key],
                trace=first and "trace" in extras_of[key],
                gaps=first or "gaps" in extras_of[key],
                layers="layers" in extras_of[key],
                allocation=key == run_key(self.recipe, {}, split, seed),
            )
            runs[key] = self._run(changes, split, seed, extras)
        self.record.cells_of(runs, self._measure)

    def _run(self, changes: Parameters, split: int, seed: int, extras: Extras) -> Run:
        parameters = {**SHAPE, **self.recipe, **changes, **(QUICK if self.plan.quick else {})}
        return Run(config_of(parameters, self.rows.data, self.device), seed, split, extras)

    def _measure(self, runs: Sequence[Run]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Train runs of one split and shape at once; yield the cell of each."""
        for split in dict.fromkeys(run.split for run in runs):
            places = [place for place, run in enumerate(runs) if run.split == split]
            watched = {place: _watched(runs[place]) for place in places}
            jobs = [Job(runs[place].config, runs[place].seed, watched[place]) for place in places]
            held_out = self.rows.held_out[split]
            for number, model in train_together(self.rows.data, jobs, self.device, held_out):
                place = places[number]
                if isinstance(model, TrainingError):  # it can only guess
                    yield place, {"error": str(model), "held_out": 1 / CLASSES}
                    continue
                seen, extras = watched[place], runs[place].extras
                first = seen.first[0] if seen else None
                points = seen.trace.points if seen and seen.trace else ()
                cell = cell_of_run(model, self.rows, split, extras, self.device, first, points)
                yield place, cell


def _watched(run: Run) -> Watched | None:
    """An observer costs time, so only runs have one of which more is measured than the end."""
    if not (run.extras.allocation or run.extras.trace):
        return None
    return Watched(Trace(every=TRACE_EVERY) if run.extras.trace else None)


def settings_of(sweeps: Sequence[str], recipe: Parameters) -> dict[str, Setting]:
    """Every setting by "sweep/label"."""
    return {
        f"{name}/{label}": setting
        for name in sweeps
        for label, setting in SWEEPS[name].settings(recipe).items()
    }


def some_of(choices: tuple[Parameters, ...], *, quick: bool) -> tuple[Parameters, ...]:
    """All choices, or the first and the last, which show that everything runs."""
    return choices[:: max(1, len(choices) - 1)] if quick else choices


def chosen_changes(
    cells: Mapping[str, Cell], settings: Mapping[str, Setting], recipe: Parameters, *, quick: bool
) -> dict[str, Parameters]:
    """What each setting changes, with the choice that did best where choices are made."""
    chosen = {}
    for place, setting in settings.items():
        options = [
            {**setting.changes, **choice} for choice in some_of(setting.choices, quick=quick)
        ]
        scores = [cells[run_key(recipe, each, CHOOSING, 0)]["held_out"] for each in options]
        best = max(range(len(options)), key=lambda number: scores[number], default=None)
        chosen[place] = setting.changes if best is None else options[best]
    return chosen


def run_key(recipe: Parameters, changes: Parameters, split: int, seed: int) -> str:
    """The name of a run's cell."""
    return f"{changes_key(recipe, changes)}/split{split}/seed{seed}"


def changes_key(recipe: Parameters, changes: Parameters) -> str:
    """The changes that differ from the recipe, so that sweeps share runs they have in common."""
    values = plain(changes)
    usual = {name: plain(recipe.get(name, _DEFAULTS[name])) for name in values}
    real = {name: values[name] for name in sorted(values) if usual[name] != values[name]}
    return f"run/{json.dumps(real)}"
