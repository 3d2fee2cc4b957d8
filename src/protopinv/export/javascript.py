"""One ES module without dependencies: weights inside, ``predict(rows)`` outside."""

from collections.abc import Sequence
from typing import Any

from protopinv.errors import ExportError
from protopinv.export.description import Description
from protopinv.export.encode import Encode
from protopinv.export.javascript_tables import table_code, table_step
from protopinv.export.steps import (
    Activate,
    Affine,
    Bend,
    ClassAnswer,
    Convolve,
    NumberAnswer,
    Pick,
    Shift,
    Step,
)
from protopinv.export.text import comment, js_floats, js_value

FIRST = """\
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const floats = (text) => new Float32Array(bytes(text).buffer);
const shorter = (text) => {
  const given = bytes(text);
  const whole = new Uint8Array((given.length / 3) * 4);
  given.forEach((byte, i) => (whole[i + Math.floor(i / 3) + 1] = byte));
  return new Float32Array(whole.buffer);
};
const doubles = (text) => new Float64Array(bytes(text).buffer);

// The error function to double precision (W. J. Cody's rational approximations would be longer):
// a series near zero, a continued fraction beyond.
function erf(x) {
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    let term = x;
    let sum = x;
    for (let n = 1; n < 60; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (z + fraction);
  return Math.sign(x) * (1 - Math.exp(-z * z) / (Math.sqrt(Math.PI) * (z + fraction)));
}
"""

STEPS = """\
const activations = {
  relu: (z) => (z > 0 ? z : 0),
  silu: (z) => z / (1 + Math.exp(-z)),
  gelu: (z) => 0.5 * z * (1 + erf(z / Math.SQRT2)),
  tanh: Math.tanh,
  sigmoid: (z) => 1 / (1 + Math.exp(-z)),
  cos: Math.cos,
  identity: (z) => z,
};

const curves = {
  squash: Math.asinh,
  clip: (z) => {
    z = Math.max(-1e6, Math.min(1e6, z));
    return z / Math.sqrt(1 + (z / 3) * (z / 3));
  },
};

const steps = {
  pick: ({ columns }) => (x) => Float64Array.from(columns, (c) => x[c]),
  shift: ({ centre }) => (x) => x.map((value, i) => value - centre[i]),
  bend: ({ kind, columns, centre, width }) => (x) => {
    const y = Float64Array.from(x);
    columns.forEach((c, i) => {
      y[c] = curves[kind]((x[c] - centre[i]) / width[i]);
    });
    return y;
  },
  affine: ({ weights, bias, shape: [blocks, n, m] }) => (x) => {
    const y = Float64Array.from(bias);
    for (let k = 0; k < blocks; k++) {
      for (let i = 0; i < n; i++) {
        const value = x[k * n + i];
        if (value === 0) continue;
        const row = (k * n + i) * m;
        for (let j = 0; j < m; j++) y[k * m + j] += value * weights[row + j];
      }
    }
    return y;
  },
  activate: ({ name }) => (x) => x.map(activations[name]),
  convolve: (s) => (x) => {
    const { filters, channels, size, height, width, strides, rows, columns } = s;
    const [atC, atH, atW] = strides;
    const down = height - size + 1;
    const across = width - size + 1;
    const area = channels * size * size;
    const contrast = new Float64Array(down * across);
    const patch = new Float64Array(area * down * across);
    for (let i = 0, at = 0; i < down; i++) {
      for (let j = 0; j < across; j++) {
        let sum = 0;
        let squares = 0;
        for (let c = 0; c < channels; c++)
          for (let a = 0; a < size; a++)
            for (let b = 0; b < size; b++, at++) {
              const value = x[c * atC + (i + a) * atH + (j + b) * atW];
              patch[at] = value;
              sum += value;
              squares += value * value;
            }
        const variance = Math.max(0, squares / area - (sum / area) ** 2);
        contrast[i * across + j] = 1 / Math.sqrt(variance + s.floor);
      }
    }
    const n = filters.length / area;
    const fields = rows.length * columns.length;
    const y = new Float64Array(2 * n * fields);
    for (let f = 0; f < n; f++) {
      const map = new Float64Array(down * across);
      for (let p = 0; p < map.length; p++) {
        let z = 0;
        for (let q = 0; q < area; q++) z += filters[f * area + q] * patch[p * area + q];
        map[p] = z * contrast[p];
      }
      rows.forEach(([top, bottom], r) =>
        columns.forEach(([left, right], q) => {
          let above = 0;
          let below = 0;
          for (let i = top; i < bottom; i++)
            for (let j = left; j < right; j++) {
              const z = map[i * across + j];
              if (z > 0) above += z;
              else below -= z;
            }
          const count = (bottom - top) * (right - left);
          y[f * fields + r * columns.length + q] = above / count;
          y[(n + f) * fields + r * columns.length + q] = below / count;
        }),
      );
    }
    return y;
  },
};
"""

OUTPUTS = """\
const made = model.steps.map(({ type, ...given }) => steps[type](given));

/** What the network answers to each row: logits of classes or labels, or plain numbers. */
export function outputs(rows) {
  const given = codes(rows);
  return given.map((row) => Array.from(made.reduce((x, step) => step(x), Float64Array.from(row))));
}
"""

ROWS = """
function codes(rows) {
  if (!Array.isArray(rows)) throw new TypeError("Rows must be an array. Wrap a single row.");
  rows.forEach((row, i) => {
    if (typeof row === "number") throw new TypeError("Rows must be arrays. Wrap a single row.");
    if (row.length !== model.inputs)
      throw new RangeError(`Rows must have ${model.inputs} numbers. Row ${i} has ${row.length}.`);
    for (const value of row)
      if (typeof value !== "number" || !Number.isFinite(value))
        throw new RangeError(`Rows must hold finite numbers. Row ${i} holds ${value}.`);
  });
  return rows;
}
"""

CLASSES = """
/** The probability of every class, in the order of `info.classes`. */
export function predictProba(rows) {
  return outputs(rows).map((z) => {
    const top = Math.max(...z);
    const e = z.map((value) => Math.exp(value - top));
    const sum = e.reduce((a, b) => a + b, 0);
    return e.map((value) => value / sum);
  });
}

/** The most likely class of each row. */
export function predict(rows) {
  return outputs(rows).map((z) => info.classes[z.indexOf(Math.max(...z))]);
}
"""

LABELS = """
/** The probability of every label. */
export function predictProba(rows) {
  return outputs(rows).map((z) => z.map((value) => 1 / (1 + Math.exp(-value))));
}

/** For every label 1 if it is there, else 0. */
export function predict(rows) {
  return outputs(rows).map((z) => z.map((value) => (value > 0 ? 1 : 0)));
}
"""

NUMBERS = """
/** The numbers of each row: one, or an array of several. */
export function predict(rows) {
  const { low, high } = model;
  return outputs(rows).map((z) => {
    const y = low ? z.map((v, i) => Math.min(high[i], Math.max(low[i], v))) : z;
    return y.length === 1 ? y[0] : y;
  });
}
"""


# Larger whole numbers are not told apart.
EXACT = 2**53 - 1


def write_javascript(
    description: Description, about: Sequence[str], *, shorter: bool = False
) -> str:
    """The module as text; ``shorter`` leaves a byte of every weight out, as ``js_floats`` does."""
    answer, encode = description.answer, description.encode
    model: dict[str, Any] = {"inputs": description.n_inputs}
    info: dict[str, Any] = {
        **description.facts,
        "features": None if description.feature_names is None else list(description.feature_names),
        "outputs": answer.n_outputs,
    }
    if isinstance(answer, ClassAnswer):
        info["classes"], code = answer.labels.tolist(), CLASSES
        if any(type(label) is int and abs(label) > EXACT for label in info["classes"]):
            raise ExportError(
                f"Labels of JavaScript must be whole numbers up to {EXACT}. One of this model is "
                "larger. Use smaller labels, or texts."
            )
    elif isinstance(answer, NumberAnswer):
        code = NUMBERS
        if answer.low is not None and answer.high is not None:
            model |= {"low": answer.low.tolist(), "high": answer.high.tolist()}
    else:
        code = LABELS
    steps = ",\n".join(f"    {step_text(step, shorter=shorter)}" for step in description.steps)
    said = "\n".join(f"// {comment(line)}" for line in about)
    return f"""\
{said}

/** What this model is. */
export const info = {js_value(info)};

{FIRST}

const model = {{
  ...{js_value(model)},
  steps: [
{steps},
  ],
}};

{STEPS}{ROWS if encode is None else table_code(encode)}
{OUTPUTS}{code}"""


def step_text(step: Step, *, shorter: bool = False) -> str:
    """The description of a step, as the functions in the module take it."""
    if isinstance(step, Encode):
        return table_step(step)
    if isinstance(step, Pick):
        return _object("pick", columns=js_value(step.columns.tolist()))
    if isinstance(step, Shift):
        return _object("shift", centre=js_floats(step.centre))
    if isinstance(step, Bend):
        return _object(
            "bend",
            kind=js_value(step.kind),
            columns=js_value(step.columns.tolist()),
            centre=js_floats(step.centre),
            width=js_floats(step.width),
        )
    if isinstance(step, Affine):
        shape = js_value(list(step.weights.shape))
        weights = js_floats(step.weights, shorter=shorter)
        return _object("affine", shape=shape, weights=weights, bias=js_floats(step.bias))
    if isinstance(step, Activate):
        return _object("activate", name=js_value(step.name))
    if isinstance(step, Convolve):
        c, h, w = step.channels, step.height, step.width
        strides = [1, w * c, c] if step.channels_last else [h * w, w, 1]
        numbers = {"channels": c, "size": step.size, "height": h, "width": w, "floor": step.floor}
        return _object(
            "convolve",
            filters=js_floats(step.filters),
            strides=js_value(strides),
            rows=js_value(step.rows),
            columns=js_value(step.columns),
            **{name: js_value(number) for name, number in numbers.items()},
        )
    raise ExportError(
        f"JavaScript can hold the steps it knows. {type(step).__name__} is none of them. Export to "
        "another format."
    )


def _object(step: str, **parts: str) -> str:
    inside = ", ".join(f"{name}: {text}" for name, text in parts.items())
    return f'{{ type: "{step}", {inside} }}'
