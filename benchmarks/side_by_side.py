"""Jobs in processes beside each other, one thread each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from joblib import Parallel, delayed, parallel_config

Job = TypeVar("Job")
Done = TypeVar("Done")


def side_by_side(
    function: Callable[[Job], Done],
    jobs: int,
    tell: Callable[[Job, Done], None],
    work: Sequence[Job],
) -> Iterator[tuple[int, Done]]:
    """The place of every job with its result, as it is finished and reported.

    With one job at a time they run in this process, one by one.
    """
    results: Iterable[tuple[int, Done]]
    if jobs == 1:
        results = ((place, function(job)) for place, job in enumerate(work))
    else:
        results = _beside(function, jobs, work)
    for place, result in results:
        tell(work[place], result)
        yield place, result


def _beside(
    function: Callable[[Job], Done], jobs: int, work: Sequence[Job]
) -> Iterator[tuple[int, Done]]:
    with parallel_config(backend="loky", inner_max_num_threads=1):
        processes = Parallel(
            n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
        )
        calls = (delayed(_alone)(place, function, job) for place, job in enumerate(work))
        yield from processes(calls)


def _alone(place: int, function: Callable[[Any], Done], job: Any) -> tuple[int, Done]:
    torch.set_num_threads(1)
    return place, function(job)
