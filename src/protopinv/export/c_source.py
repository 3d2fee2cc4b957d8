"""What every file of C has, in float32 and in int8: constants, answers, a header, stored cases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ExportError
from protopinv.export import c_tables
from protopinv.export.description import Description
from protopinv.export.steps import ClassAnswer, NumberAnswer, Pick, Rows
from protopinv.export.text import c_numbers, c_string, comment


@dataclass
class Constants:
    """Arrays of a C file, and the bytes they take."""

    texts: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, name: str, numbers: NDArray[Any], kind: str) -> str:
        """One more; gives its name."""
        wide = {"float": 4, "int": 4, "int32_t": 4, "int8_t": 1, "uint8_t": 1}.get(kind, 1)
        body = c_numbers(numbers)
        self.texts.append(f"static const {kind} {name}[{numbers.size}] = {{\n{body}\n}};\n")
        self.size += wide * numbers.size
        return name


@dataclass(frozen=True)
class Source:
    """Files of C as text: the network, its header, a program of stored cases, and its memory."""

    code: str
    header: str
    test: str
    constant_bytes: int
    static_bytes: int


def mask_of(step: Pick) -> NDArray[np.uint8]:
    """A bit for each feature, the first one lowest."""
    chosen = np.zeros(step.n_inputs, dtype=bool)
    chosen[step.columns] = True
    return np.packbits(chosen, bitorder="little")


def preamble(about: Sequence[str], stem: str, constants: int, static: int) -> list[str]:
    """What the file says of itself."""
    lines = [
        *about,
        f"{constants} bytes of constants, {static} bytes of static buffers; no other memory but a "
        "small stack.",
        f"One thread at a time may call it. See {stem}.h.",
    ]
    text = "\n * ".join(comment(line) for line in lines)
    return [f"/* {text}\n */\n"]


def answers(description: Description, name: str, *, whole: bool = False) -> list[str]:
    """What outputs stand for: a label, probabilities, numbers.

    Labels come from whole numbers where there are any, and from floats elsewhere.
    """
    answer, k = description.answer, description.answer.n_outputs
    if isinstance(answer, NumberAnswer):
        bounds = ""
        texts = []
        if answer.low is not None and answer.high is not None:
            constants = Constants()
            constants.add("low", answer.low, "float")
            constants.add("high", answer.high, "float")
            texts = constants.texts
            bounds = (
                f"    for (int i = 0; i < {k}; i++) {{\n"
                "        numbers[i] = numbers[i] < low[i] ? low[i] : numbers[i];\n"
                "        numbers[i] = numbers[i] > high[i] ? high[i] : numbers[i];\n    }\n"
            )
        return [
            "\n",
            *texts,
            f"\nvoid {name}_predict(const float *x, float *numbers)\n{{\n"
            f"    {name}_outputs(x, numbers);\n{bounds}}}\n",
        ]
    if isinstance(answer, ClassAnswer):
        return [_class_names(description, name), _class_code(name, k, whole=whole)]
    return [_label_code(name, k, whole=whole)]


def answer_bytes(description: Description) -> int:
    """Constants behind the network: names of classes with a pointer of 32 bits each, or bounds."""
    answer = description.answer
    if isinstance(answer, ClassAnswer):
        return sum(len(label.encode()) + 1 + 4 for label in description.labels)
    bounded = isinstance(answer, NumberAnswer) and answer.low is not None
    return 8 * answer.n_outputs if bounded else 0


def _class_names(description: Description, name: str) -> str:
    if any("\0" in label for label in description.labels):
        raise ExportError(
            "Names of classes end in C where they have a zero byte. One of this model has one. "
            "Export to another format, or rename the class."
        )
    labels = "".join(f"    {c_string(label)},\n" for label in description.labels).rstrip(",\n")
    return f"\nconst char *const {name}_names[{len(description.labels)}] = {{\n{labels}\n}};\n"


def _class_code(name: str, k: int, *, whole: bool) -> str:
    kind, call = ("int32_t", "whole") if whole else ("float", "outputs")
    return f"""
int {name}_predict(const float *x)
{{
    {kind} outputs[{k}];
    int best = 0;
    {name}_{call}(x, outputs);
    for (int i = 1; i < {k}; i++) {{
        if (outputs[i] > outputs[best]) {{
            best = i;
        }}
    }}
    return best;
}}

int {name}_probabilities(const float *x, float *probabilities)
{{
    int best = 0;
    float sum = 0.0f, top;
    {name}_outputs(x, probabilities);
    for (int i = 1; i < {k}; i++) {{
        if (probabilities[i] > probabilities[best]) {{
            best = i;
        }}
    }}
    top = probabilities[best];
    for (int i = 0; i < {k}; i++) {{
        probabilities[i] = expf(probabilities[i] - top);
        sum += probabilities[i];
    }}
    for (int i = 0; i < {k}; i++) {{
        probabilities[i] /= sum;
    }}
    return best;
}}
"""


def _label_code(name: str, k: int, *, whole: bool) -> str:
    kind, call = ("int32_t", "whole") if whole else ("float", "outputs")
    return f"""
void {name}_predict(const float *x, unsigned char *labels)
{{
    {kind} outputs[{k}];
    {name}_{call}(x, outputs);
    for (int i = 0; i < {k}; i++) {{
        labels[i] = outputs[i] > 0;
    }}
}}

void {name}_probabilities(const float *x, float *probabilities)
{{
    {name}_outputs(x, probabilities);
    for (int i = 0; i < {k}; i++) {{
        probabilities[i] = 1.0f / (1.0f + expf(-probabilities[i]));
    }}
}}
"""


def header_text(
    description: Description,
    name: str,
    stem: str,
    about: Sequence[str],
    memory: tuple[int, int],
    *,
    whole: bool = False,
) -> str:
    """Declarations, for C and C++."""
    answer, k, upper = description.answer, description.answer.n_outputs, name.upper()
    if isinstance(answer, ClassAnswer):
        declared = f"""\
/* Names of the classes, in UTF-8. */
extern const char *const {name}_names[{upper}_OUTPUTS];

/* The number of the most likely class of a row. */
int {name}_predict(const float *x);

/* The same, and the probability of every class. */
int {name}_probabilities(const float *x, float *probabilities);
"""
    elif isinstance(answer, NumberAnswer):
        kept = "" if answer.low is None else ", kept near those it was trained on"
        declared = f"""\
/* The numbers of a row{kept}. */
void {name}_predict(const float *x, float *numbers);
"""
    else:
        declared = f"""\
/* For each label 1 if it is there, else 0. */
void {name}_predict(const float *x, unsigned char *labels);

/* The probability of each label. */
void {name}_probabilities(const float *x, float *probabilities);
"""
    first = "".join(preamble(about, stem, *memory))
    inputs = _feature_comments(description)
    if description.encode is not None:
        inputs = c_tables.columns_comment(description.encode, name)
    include = "#include <stdint.h>\n\n" if whole else ""
    if whole:
        inputs += f"""\
/* Outputs as whole numbers, all in one scale. */
void {name}_whole(const float *x, int32_t *outputs);

"""
    return f"""\
{first}#ifndef {upper}_H
#define {upper}_H

#define {upper}_INPUTS {description.n_inputs}
#define {upper}_OUTPUTS {k}

{include}#ifdef __cplusplus
extern "C" {{
#endif

{inputs}/* What the network answers to a row: before labels, probabilities and bounds. */
void {name}_outputs(const float *x, float *outputs);

{declared}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _feature_comments(description: Description) -> str:
    if description.feature_names is None or len(description.feature_names) > 200:
        return ""
    names = [
        f" *   x[{number}] {comment(name)}" for number, name in enumerate(description.feature_names)
    ]
    return "/* A row:\n" + "\n".join(names) + "\n */\n"


def test_program(
    name: str,
    stem: str,
    cases: NDArray[Any],
    expected: Rows,
    allowed: Rows,
) -> str:
    """A program that tries stored cases: 0 if every output is near enough."""
    n, k = len(cases), len(allowed)
    if n == 0:
        cases, expected = np.zeros((1, cases.shape[1])), np.zeros((1, k))
    d = cases.shape[1]
    return f"""\
/* Stored cases: cc -std=c99 {stem}.c {stem}_test.c -lm && ./a.out */
#include "{stem}.h"

#include <math.h>
#include <stdio.h>

static const float rows[{len(cases)}][{d}] = {{
{_nested(cases)}
}};
static const float expected[{len(cases)}][{k}] = {{
{_nested(expected)}
}};
static const float allowed[{k}] = {{
{c_numbers(allowed)}
}};

int main(void)
{{
    float worst = 0.0f;
    for (int i = 0; i < {n}; i++) {{
        float outputs[{k}];
        {name}_outputs(rows[i], outputs);
        for (int j = 0; j < {k}; j++) {{
            const float off = fabsf(outputs[j] - expected[i][j]);
            if (!(off <= allowed[j])) {{
                printf("case %d, output %d: %g instead of %g\\n", i, j, (double)outputs[j],
                       (double)expected[i][j]);
                return 1;
            }}
            worst = off > worst ? off : worst;
        }}
    }}
    printf("{n} cases, largest difference %g\\n", (double)worst);
    return 0;
}}
"""


def _nested(numbers: Rows) -> str:
    """One inner list a row."""
    rows = (f"    {{\n{c_numbers(row.astype(np.float32))}\n    }}" for row in numbers)
    return ",\n".join(rows)
