"""The same C file in whole numbers: what ``quantise`` made, without math.h up to a label."""

from collections.abc import Sequence

import numpy as np

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
from protopinv.export.quantise import Layer, Quantised
from protopinv.export.steps import Pick
from protopinv.export.text import c_numbers

ENTER = """\
/* A feature as a whole number; whatever is not a number is as small as can be. */
static int8_t enter(float x, float middle, float factor)
{
    float z = x - middle;
    z = z * factor;
    z = z > -127.0f ? z : -127.0f;
    z = z < 127.0f ? z : 127.0f;
    return (int8_t)((int)(z + 128.5f) - 128);
}

"""
BENT = """\
/* A bent column: which of the starts are behind z. */
static int8_t enter_bent(float x, float centre, float width)
{
    const float z = (x - centre) / width;
    int below = 0, above = 254;
    while (below < above) {
        const int half = (below + above) / 2;
        if (z >= starts[half]) {
            below = half + 1;
        } else {
            above = half;
        }
    }
    return (int8_t)(below - 127);
}

"""
SUMS = """\
/* sum * multiplier / 2^shift, rounded half up. */
static int64_t scaled(int32_t sum, int32_t multiplier, int32_t shift)
{
    const int64_t v = (int64_t)sum * multiplier + ((int64_t)1 << (shift - 1));
    const int64_t rest = ((int64_t)1 << shift) - 1;
    return v >= 0 ? v >> shift : -((-v + rest) >> shift);
}

static int32_t sum_of(const int8_t *x, const int8_t *w, int n, int32_t sum)
{
    for (int i = 0; i < n; i++) {
        sum += x[i] * w[i];
    }
    return sum;
}

"""
HIDDEN = """\
static void layer(const int8_t *x, int8_t *y, const int8_t *w, const int32_t *bias,
                  const int32_t *multiplier, const uint8_t *shift, int blocks, int n, int m,
                  int zero, int lowest, const int8_t *table)
{
    for (int k = 0; k < blocks; k++, x += n, y += m) {
        for (int j = 0; j < m; j++, w += n) {
            const int u = k * m + j;
            int64_t z = scaled(sum_of(x, w, n, bias[u]), multiplier[u], shift[u]) + zero;
            z = z < lowest ? lowest : (z > 127 ? 127 : z);
            y[j] = table != 0 ? table[z + 128] : (int8_t)z;
        }
    }
}

"""


def write_c_int8(
    description: Description, model: Quantised, name: str, stem: str, about: Sequence[str]
) -> Source:
    """The network as C99 in int8; ``name`` is the prefix of all that it exports."""
    constants = Constants()
    enter = _enter(model, description, constants)
    widths = [
        len(model.entry.columns),
        *(layer.weights.shape[0] * layer.weights.shape[2] for layer in model.layers),
    ]
    sizes = [max(widths[0:-1:2]), max(widths[1:-1:2], default=0)]
    static = sum(sizes)
    constants.size += answer_bytes(description)
    calls = [_call(layer, number, constants) for number, layer in enumerate(model.layers)]
    k = description.answer.n_outputs
    last = len(model.layers) - 1
    here = f"buffer_{last % 2}"
    n, m = model.layers[-1].weights.shape[1:]
    scale = c_numbers(model.output_scale[:1]).strip()
    if len(model.output_scale) > 1:
        scale = f"{constants.add('output_scale', model.output_scale, 'float')}[j]"
    buffers = "".join(
        f"static int8_t buffer_{number}[{size}];\n" for number, size in enumerate(sizes) if size
    )
    whole = f"""\
void {name}_whole(const float *x, int32_t *outputs)
{{
{enter}{"".join(calls[:-1])}    for (int j = 0; j < {m}; j++) {{
        const int64_t z = scaled(sum_of({here}, weights_{last} + j * {n}, {n}, bias_{last}[j]),
                                 multiplier_{last}[j], shift_{last}[j]);
        outputs[j] = (int32_t)(z > 2147483647 ? 2147483647 : (z < -2147483647 ? -2147483647 : z));
    }}
}}

void {name}_outputs(const float *x, float *outputs)
{{
    int32_t whole[{k}];
    {name}_whole(x, whole);
    for (int j = 0; j < {k}; j++) {{
        outputs[j] = (float)whole[j] * {scale};
    }}
}}
"""
    parts = [ENTER]
    if len(model.entry.bent):
        parts.append(BENT)
    parts.append(SUMS)
    if len(model.layers) > 1:
        parts.append(HIDDEN)
    code = [
        *preamble(about, stem, constants.size, static),
        f'#include "{stem}.h"\n\n#include <math.h>\n\n',
        *constants.texts,
        buffers,
        "\n",
        *parts,
        whole,
        *answers(description, name, whole=True),
    ]
    cases = description.examples[:8].astype(np.float32)
    expected = model.outputs(cases)
    test = test_program(name, stem, cases, expected, np.zeros(k))
    header = header_text(description, name, stem, about, (constants.size, static), whole=True)
    return Source("".join(code), header, test, constants.size, static)


def _enter(model: Quantised, description: Description, constants: Constants) -> str:
    """The loop that fills the first buffer."""
    entry, n = model.entry, description.n_inputs
    picked = len(entry.columns) < n
    if picked:
        constants.add("used", mask_of(Pick(entry.columns, n)), "uint8_t")
    if np.ptp(entry.middle) == 0 and np.ptp(entry.factor) == 0:
        middle, factor = (c_numbers(part[:1]).strip() for part in (entry.middle, entry.factor))
    else:
        constants.add("middles", entry.middle, "float")
        constants.add("factors", entry.factor, "float")
        middle, factor = ("middles[k]", "factors[k]") if picked else ("middles[i]", "factors[i]")
    loop = (
        f"    for (int i = 0; i < {n}; i++) {{\n"
        f"        buffer_0[i] = enter(x[i], {middle}, {factor});\n    }}\n"
    )
    if picked:
        loop = (
            f"    for (int i = 0, k = 0; i < {n}; i++) {{\n"
            "        if (used[i / 8] >> i % 8 & 1) {\n"
            f"            buffer_0[k] = enter(x[i], {middle}, {factor});\n"
            "            k++;\n        }\n    }\n"
        )
    if not len(entry.bent):
        return loop
    constants.add("place", entry.columns[entry.bent], "int")
    constants.add("bent", entry.bent, "int")
    constants.add("centres", entry.centre, "float")
    constants.add("widths", entry.width, "float")
    constants.add("starts", entry.starts, "float")
    return loop + (
        f"    for (int i = 0; i < {len(entry.bent)}; i++) {{\n"
        "        buffer_0[bent[i]] = enter_bent(x[place[i]], centres[i], widths[i]);\n    }\n"
    )


def _call(layer: Layer, number: int, constants: Constants) -> str:
    # inputs of a unit next to each other
    constants.add(f"weights_{number}", layer.weights.swapaxes(1, 2), "int8_t")
    constants.add(f"bias_{number}", layer.bias, "int32_t")
    constants.add(f"multiplier_{number}", layer.multiplier, "int32_t")
    constants.add(f"shift_{number}", layer.shift, "uint8_t")
    table = "0"
    if layer.table is not None:
        table = constants.add(f"table_{number}", layer.table, "int8_t")
    blocks, n, m = layer.weights.shape
    here, there = f"buffer_{number % 2}", f"buffer_{(number + 1) % 2}"
    return (
        f"    layer({here}, {there}, weights_{number}, bias_{number}, multiplier_{number}, "
        f"shift_{number}, {blocks},\n          {n}, {m}, {layer.zero}, {layer.lowest}, {table});\n"
    )
