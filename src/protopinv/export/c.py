"""C99 in float32: one file and a header, nothing but math.h, no memory but static buffers."""

from collections.abc import Sequence

import numpy as np

from protopinv.errors import ExportError
from protopinv.export import c_tables
from protopinv.export.c_source import (
    Constants,
    Source,
    answer_bytes,
    answers,
    header_text,
    mask_of,
    preamble,
    test_program,
)
from protopinv.export.description import Description
from protopinv.export.encode import Encode
from protopinv.export.steps import (
    Activate,
    Affine,
    Bend,
    Convolve,
    Pick,
    Shift,
    Step,
)
from protopinv.export.text import c_numbers

# Functions of the file, each written only if a step calls it.
FUNCTIONS = {
    "pick": """\
static void pick(const float *x, float *y, const unsigned char *used, int n)
{
    for (int i = 0; i < n; i++) {
        if (used[i / 8] >> i % 8 & 1) {
            *y++ = x[i];
        }
    }
}
""",
    "shift": """\
static void shift(const float *x, float *y, const float *centre, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] = x[i] - centre[i];
    }
}
""",
    "squash": """\
static void squash(const float *x, float *y, int n, const int *column, const float *centre,
                   const float *width, int chosen)
{
    for (int i = 0; i < n; i++) {
        y[i] = x[i];
    }
    for (int i = 0; i < chosen; i++) {
        y[column[i]] = asinhf((x[column[i]] - centre[i]) / width[i]);
    }
}
""",
    "clip": """\
static void clip(const float *x, float *y, int n, const int *column, const float *centre,
                 const float *width, int chosen)
{
    for (int i = 0; i < n; i++) {
        y[i] = x[i];
    }
    for (int i = 0; i < chosen; i++) {
        float z = (x[column[i]] - centre[i]) / width[i];
        z = z > 1e6f ? 1e6f : (z < -1e6f ? -1e6f : z);
        y[column[i]] = z / sqrtf(1.0f + (z / 3.0f) * (z / 3.0f));
    }
}
""",
    "affine": """\
static void affine(const float *x, float *y, const float *w, const float *b, int blocks, int n,
                   int m)
{
    for (int k = 0; k < blocks; k++, x += n, y += m, w += n * m) {
        for (int j = 0; j < m; j++) {
            y[j] = b != 0 ? b[k * m + j] : 0.0f;
        }
        for (int i = 0; i < n; i++) {
            const float value = x[i], *row = w + i * m;
            for (int j = 0; j < m; j++) {
                y[j] += value * row[j];
            }
        }
    }
}
""",
    "relu": "static float relu(float z)\n{\n    return z > 0.0f ? z : 0.0f;\n}\n",
    "silu": "static float silu(float z)\n{\n    return z / (1.0f + expf(-z));\n}\n",
    "gelu": """\
static float gelu(float z)
{
    return 0.5f * z * (1.0f + erff(z * 0.70710678118654752f));
}
""",
    "sigmoid": "static float sigmoid(float z)\n{\n    return 1.0f / (1.0f + expf(-z));\n}\n",
    "activate": """\
static void activate(float *x, int n, float (*function)(float))
{
    for (int i = 0; i < n; i++) {
        x[i] = function(x[i]);
    }
}
""",
    "convolve": """\
/* Filters at every place, divided by the contrast there; means over fields of what is positive and
 * of what is negative. Strides say how maps lie in x. */
static void convolve(const float *x, float *y, float *contrast, const float *w, float smallest,
                     int filters, int channels, int size, int height, int width, int step_c,
                     int step_h, int step_w, const int *rows, int n_rows, const int *columns,
                     int n_columns)
{
    const int down = height - size + 1, across = width - size + 1;
    for (int i = 0; i < down; i++) {
        for (int j = 0; j < across; j++) {
            float sum = 0.0f, squares = 0.0f;
            for (int c = 0; c < channels; c++) {
                for (int a = 0; a < size; a++) {
                    for (int b = 0; b < size; b++) {
                        const float v = x[c * step_c + (i + a) * step_h + (j + b) * step_w];
                        sum += v;
                        squares += v * v;
                    }
                }
            }
            const float n = (float)(channels * size * size), mean = sum / n;
            const float variance = squares / n - mean * mean;
            contrast[i * across + j] = 1.0f / sqrtf((variance > 0.0f ? variance : 0.0f) + smallest);
        }
    }
    const int fields = n_rows * n_columns;
    for (int f = 0; f < filters; f++, w += channels * size * size) {
        for (int r = 0; r < n_rows; r++) {
            for (int q = 0; q < n_columns; q++) {
                float above = 0.0f, below = 0.0f;
                for (int i = rows[2 * r]; i < rows[2 * r + 1]; i++) {
                    for (int j = columns[2 * q]; j < columns[2 * q + 1]; j++) {
                        const float *k = w;
                        float z = 0.0f;
                        for (int c = 0; c < channels; c++) {
                            for (int a = 0; a < size; a++) {
                                for (int b = 0; b < size; b++) {
                                    z += *k++ * x[c * step_c + (i + a) * step_h + (j + b) * step_w];
                                }
                            }
                        }
                        z *= contrast[i * across + j];
                        above += z > 0.0f ? z : 0.0f;
                        below += z < 0.0f ? -z : 0.0f;
                    }
                }
                const float n = (float)((rows[2 * r + 1] - rows[2 * r])
                                        * (columns[2 * q + 1] - columns[2 * q]));
                y[f * fields + r * n_columns + q] = above / n;
                y[(filters + f) * fields + r * n_columns + q] = below / n;
            }
        }
    }
}
""",
}
# Activations that math.h has.
LIBRARY = {"tanh": "tanhf", "cos": "cosf"}


def write_c(description: Description, name: str, stem: str, about: Sequence[str]) -> Source:
    """The network as C99 in float32.

    ``name`` is the prefix of all that it exports, ``stem`` the name of its files without an ending.
    """
    writer = _Writer(description)
    body = writer.body()
    writer.constants.size += answer_bytes(description)
    known = {**c_tables.FUNCTIONS, **FUNCTIONS}
    helpers = [known[function] for function in known if function in writer.used]
    values = ""
    if description.encode is not None:
        values, size = c_tables.names_of_values(description.encode, name)
        writer.constants.size += size
    code = [
        *preamble(about, stem, writer.constants.size, writer.static_bytes),
        f'#include "{stem}.h"\n\n#include <math.h>\n\n',
        *writer.constants.texts,
        *writer.buffers,
        "\n",
        *(helper + "\n" for helper in helpers),
        f"void {name}_outputs(const float *x, float *outputs)\n{{\n{body}}}\n",
        *answers(description, name),
        values,
    ]
    cases = description.examples[:8].astype(np.float32)
    expected = description.outputs(cases)
    allowed = 2e-4 * np.abs(expected).max(axis=0, initial=0.0)
    test = test_program(name, stem, cases, expected, allowed)
    memory = writer.constants.size, writer.static_bytes
    header = header_text(description, name, stem, about, memory)
    return Source("".join(code), header, test, *memory)


class _Writer:
    """Constants, buffers and calls of every step."""

    def __init__(self, description: Description) -> None:
        self.steps = description.steps
        self.constants = Constants()
        self.used: set[str] = set()
        self.buffers: list[str] = []
        self.static_bytes = 0

    def body(self) -> str:
        """The calls, from the row to the outputs, between two buffers that take turns."""
        sizes = [0, 0]
        calls, here, turn = [], "x", 0
        for number, step in enumerate(self.steps):
            if isinstance(step, Activate):
                calls.append(self._activation(step, here))
                continue
            last = all(isinstance(later, Activate) for later in self.steps[number + 1 :])
            there = "outputs" if last else f"buffer_{turn}"
            if not last:
                sizes[turn] = max(sizes[turn], step.n_outputs)
                turn = 1 - turn
            calls.append(self._call(step, number, here, there))
            here = there
        for number, size in enumerate(sizes):
            if size:
                self._buffer(f"buffer_{number}", size)
        return "".join(f"    {call}\n" for call in calls if call)

    def _buffer(self, name: str, size: int) -> None:
        self.buffers.append(f"static float {name}[{size}];\n")
        self.static_bytes += 4 * size

    def _activation(self, step: Activate, here: str) -> str:
        if step.name == "identity":
            return ""
        self.used.add("activate")
        function = LIBRARY.get(step.name, step.name)
        if function == step.name:
            self.used.add(function)
        return f"activate({here}, {step.n_inputs}, {function});"

    def _call(self, step: Step, number: int, here: str, there: str) -> str:
        add = self.constants.add
        if isinstance(step, Encode):
            return "\n    ".join(c_tables.encode_calls(step, there, self.constants, self.used))
        if isinstance(step, Pick):
            self.used.add("pick")
            mask = add(f"used_{number}", mask_of(step), "unsigned char")
            return f"pick({here}, {there}, {mask}, {step.n_inputs});"
        if isinstance(step, Shift):
            self.used.add("shift")
            centre = add(f"centre_{number}", step.centre, "float")
            return f"shift({here}, {there}, {centre}, {step.n_inputs});"
        if isinstance(step, Bend):
            self.used.add(step.kind)
            column = add(f"column_{number}", step.columns, "int")
            centre = add(f"centre_{number}", step.centre, "float")
            width = add(f"width_{number}", step.width, "float")
            chosen = len(step.columns)
            return (
                f"{step.kind}({here}, {there}, {step.n_inputs}, {column}, {centre}, {width}, "
                f"{chosen});"
            )
        if isinstance(step, Affine):
            self.used.add("affine")
            weights = add(f"weights_{number}", step.weights, "float")
            bias = add(f"bias_{number}", step.bias, "float") if step.has_bias else "0"
            blocks, n, m = step.weights.shape
            return f"affine({here}, {there}, {weights}, {bias}, {blocks}, {n}, {m});"
        if isinstance(step, Convolve):
            return self._convolution(step, number, here, there)
        raise ExportError(
            f"C can hold the steps it knows. {type(step).__name__} is none of them. Export to "
            "another format."
        )

    def _convolution(self, step: Convolve, number: int, here: str, there: str) -> str:
        self.used.add("convolve")
        add = self.constants.add
        filters = add(f"filters_{number}", step.filters, "float")
        rows = add(f"rows_{number}", np.array(step.rows), "int")
        columns = add(f"columns_{number}", np.array(step.columns), "int")
        down, across = step.inner
        self._buffer(f"contrast_{number}", down * across)
        c, h, w = step.channels, step.height, step.width
        strides = (1, w * c, c) if step.channels_last else (h * w, w, 1)
        floor = c_numbers(np.array([step.floor])).strip()
        numbers = ", ".join(map(str, (len(step.filters), c, step.size, h, w, *strides)))
        return (
            f"convolve({here}, {there}, contrast_{number}, {filters}, {floor}, {numbers}, "
            f"{rows}, {len(step.rows)}, {columns}, {len(step.columns)});"
        )
