"""docs/export.md, from dated records."""

from collections.abc import Mapping
from typing import Any

from results_page import recipe

from benchmarks.fuzz import fuzz_table
from benchmarks.shipping.study import shipping_tables

START = """\
# A model leaves Python

```sh
protopinv export model.safetensors model.onnx
protopinv export model.safetensors model.c                          # and model.h, model_test.c
protopinv export model.safetensors model.c --dtype int8 --calibrate train.csv --target y
protopinv export model.safetensors model.mjs
protopinv export model.safetensors small.safetensors --dtype float16
protopinv inspect model.safetensors --card > README.md              # a model card
```

In Python: `model.export(path, dtype=..., calibration=rows, X=rows, y=targets)`, which says how
far predictions moved and what that cost; `model.to_sklearn()`, `model.to_torch()`;
`model.save(path, bank=False, dtype="float16")`. ONNX needs the package onnx: `pip install -c
constraints.txt '.[export]'`.

All formats are written from one description of the network (`src/protopinv/export/steps.py`): a
format holds every step in it, or refuses the model before it writes anything.

**ONNX** has the input `X`, float32 with any number of rows, and the outputs `label` and
`probabilities`, or `variable` for numbers: plain tensors under the names that scikit-learn's
converters give them, operator set 13. Classes, features and task are in its metadata. A model of a
[frame](tables.md) with text, dates or gaps has an input for each column instead, of shape (n, 1):
text for categories (an empty one is a gap), float32 for numbers (NaN is one), days since 1970 in
float64 for dates. A column that is called like an output gets an underscore.

**C99** is one file with its header and a program of stored cases. It calls math.h and nothing
else, allocates nothing, and keeps its buffers static, so one thread at a time may call it. It is
meant for processors whose `int` has 32 bits. `model_predict(x)` gives the number of a class,
`model_probabilities(x, p)` fills in all of them; the header has the rest. For a frame every column
is one number: NAN is a gap, a category is `model_code(column, "text")`, a date counts days from the
day that the header names.

**int8** is what TensorFlow Lite defines: weights with one scale for each output, activations with
a scale and a zero point for each layer, sums of 32 bits, a multiplier and a shift. A label is
found without a function of math.h: activations and bent columns are tables. Ranges come from the
rows given with `--calibrate`, a few thousand rows of training are enough, or from made-up rows,
which is less accurate. A convolutional stem is refused, and so is a frame.

No export holds a training row: the eight stored cases of C and the rows that a model file checks
itself on are made up. `--with-examples` writes training rows instead, where the model has some.

Only model files compute [n-grams](tables.md#what-becomes-of-a-column). In other formats a value
of a category that was never seen is any other, even where Python takes it for one that is like it;
and text that differs in most rows is passed as its numbers, one for each column of n-grams, which
`model.table_.codes(frame)` has.

**JavaScript** is a module without dependencies for browsers and node: `predict(rows)`,
`predictProba(rows)`, `outputs(rows)` and `info`. Rows of a frame are objects with the names of the
columns: numbers, texts, Booleans, null for gaps, dates and text of numbers as in training;
`columns` says what each is.

**scikit-learn** gets an `MLPClassifier` or `MLPRegressor` with our weights, if the activation is
one of theirs and nothing stands before the layers. Bounds of a regressor are not part of it.

Features that no weight touches, such as pixels that are always dark, are left out of an export. A
first layer of few directions (few prototypes, or a projection) is written as two thin factors
where that is smaller.
"""


def export_page(newest: Mapping[str, Mapping[str, Any]]) -> str:
    """The page."""
    lines = START.splitlines()
    record = newest.get("shipping-cpu")
    if record is not None:
        tables = shipping_tables(record)
        lines += [
            "",
            "## The same answers",
            "",
            "The largest difference of a probability from Python's over all test rows, and the "
            "share of rows with the same label; for the number, the largest relative difference. "
            "int8 is calibrated on 2,000 training rows; its figure is the change in points of "
            "accuracy (for several labels, that of each label) or R2:",
            "",
            *tables["agreement"],
            "",
            "## Sizes",
            "",
            "Flash is code and constants, RAM the static buffers, compiled by gcc -Os for this "
            "machine. The file holds 32 rows of training and the history too:",
            "",
            *tables["sizes"],
            "",
            "An MLP of scikit-learn of a like accuracy, exported by emlearn, which writes float32 "
            "for networks:",
            "",
            *tables["emlearn"],
            "",
            "MNIST in 16 x 16 pixels for a microcontroller, trained with eight distorted copies of "
            "every image, one seed, accuracy on the test set. BitNetMCU reports 99.02 % with "
            "12.3 kB for this size of image, by training in four bits; we train in floats and "
            "round:",
            "",
            *tables["tiny"],
            "",
            "## Speed",
            "",
            "Milliseconds for all test rows of the first table in float32, all ways in turn "
            "with a rest before each, medians; two threads, C one. scikit-learn's is our network "
            "as its own MLP, where it can hold it:",
            "",
            *tables["speed"],
            "",
            "`python -m benchmarks shipping` makes all of it.",
            "",
            f"<sub>{recipe(record)}</sub>",
        ]
    fuzz = newest.get("fuzz-cpu")
    if fuzz is not None:
        cell = fuzz["cells"]["files"]
        lines += [
            "",
            "## Files from strangers",
            "",
            f"Model files of {cell['kinds']} kinds, damaged at random in their bytes, numbers or "
            "header. What is refused is refused by a `ModelFileError`; what loads had damage that "
            "changes nothing that must hold, such as a number of the history:",
            "",
            *fuzz_table(fuzz),
            "",
            "`python -m benchmarks fuzz` makes it.",
            "",
            f"<sub>{recipe(fuzz)}</sub>",
        ]
    return "\n".join(lines) + "\n"
