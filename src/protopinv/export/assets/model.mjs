{% for line in about %}
// {{ line|comment }}
{% endfor %}

/** What this model is. */
export const info = {{ info }};

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const shaped = (array, shape) => Object.assign(array, { shape });
const whole = (text, shape) => shaped(new Int8Array(bytes(text).buffer), shape);
const floats = (text, shape) => shaped(new Float32Array(bytes(text).buffer), shape);
const doubles = (text, shape) => shaped(new Float64Array(bytes(text).buffer), shape);
// Floats without their last byte.
const shorter = (text, shape) => {
  const packed = bytes(text);
  const padded = new Uint8Array((packed.length / 3) * 4);
  packed.forEach((byte, i) => (padded[i + Math.floor(i / 3) + 1] = byte));
  return shaped(new Float32Array(padded.buffer), shape);
};

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

const model = {
  ...{{ facts }},
  steps: [
    {{ steps|join(",\n    ") }},
  ],
};

const activations = {
  relu: (z) => (z > 0 ? z : 0),
  silu: (z) => z / (1 + Math.exp(-z)),
  gelu: (z) => 0.5 * z * (1 + erf(z / Math.SQRT2)),
  tanh: Math.tanh,
  sigmoid: (z) => 1 / (1 + Math.exp(-z)),
  cos: Math.cos,
};

const curves = {
  squash: Math.asinh,
  clip: (z) => {
    z = Math.max(-1e6, Math.min(1e6, z));
    return z / Math.sqrt(1 + (z / 3) * (z / 3));
  },
};

// Where the fields begin and end that a side is averaged over: so many, or two pixels each.
const fields = (side, pool) =>
  Array.from({ length: pool || Math.floor(side / 2) }, (_, i) =>
    pool
      ? [Math.floor((i * side) / pool), Math.ceil(((i + 1) * side) / pool)]
      : [2 * i, 2 * i + 2],
  );

const steps = {
  pick: ({ columns }) => (x) => Float64Array.from(columns, (c) => x[c]),
  shift: ({ centre }) => (x) => x.map((value, i) => value - centre[i]),
  bend: ({ kind, chosen, centre, width }) => (x) =>
    x.map((value, i) => (chosen[i] ? curves[kind]((value - centre[i]) / width[i]) : value)),
  rise: ({ raw, column, low, high }) => (x) => {
    const y = new Float64Array(raw.length + column.length);
    raw.forEach((c, i) => (y[i] = x[c]));
    column.forEach((c, i) => {
      const z = (x[c] - low[i]) / (high[i] - low[i]);
      y[raw.length + i] = Math.max(0, Math.min(1, z));
    });
    return y;
  },
  affine: ({ weight, bias }) => (x) => {
    const [blocks, n, m] = weight.shape;
    const y = Float64Array.from(bias);
    for (let k = 0; k < blocks; k++) {
      for (let i = 0; i < n; i++) {
        const value = x[k * n + i];
        if (value === 0) continue;
        const row = (k * n + i) * m;
        for (let j = 0; j < m; j++) y[k * m + j] += value * weight[row + j];
      }
    }
    return y;
  },
  activate: ({ name }) => (x) => x.map(activations[name]),
  convolve: ({ filters, floor, height, width, channels_last, pool }) => (x) => {
    const [n, channels, size] = filters.shape;
    const [atC, atH, atW] = channels_last
      ? [1, width * channels, channels]
      : [height * width, width, 1];
    const down = height - size + 1;
    const across = width - size + 1;
    const area = channels * size * size;
    const rows = fields(down, pool);
    const columns = fields(across, pool);
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
        contrast[i * across + j] = 1 / Math.sqrt(variance + floor);
      }
    }
    const pooled = rows.length * columns.length;
    const y = new Float64Array(2 * n * pooled);
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
          y[f * pooled + r * columns.length + q] = above / count;
          y[(n + f) * pooled + r * columns.length + q] = below / count;
        }),
      );
    }
    return y;
  },
};

{% if columns %}
/** What each column is, and a usual value of it. */
export const columns = [
  {{ columns|join(",\n  ") }},
];
for (const column of columns)
  column.places = new Map((column.values || []).map((value, i) => [value, i]));

const gaps = new Set({{ gaps }});
const number = /^[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;
const months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

// A number as people write it, with a currency, groups of digits, a unit; NaN for anything else.
function written(text, form) {
  const parts = new RegExp(`^${form}$`).exec(text)?.groups;
  if (!parts) return NaN;
  const { then, end, hours, minutes, seconds = 0, whole, fraction, power } = parts;
  const sign = parts.sign + then;
  if (sign.length > 1 || (sign === "(") !== (end === ")")) return NaN;
  if (!hours && !/[0-9]/.test(whole + fraction)) return NaN;
  const number = hours
    ? +hours + (+minutes + seconds / 60) / 60
    : Number(`0${whole.replace(/[^0-9]/g, "")}.${fraction || 0}e${power || 0}`);
  return Number.isFinite(number) ? (sign === "" || sign === "+" ? number : -number) : NaN;
}

// A value of a column as a number: NaN for a gap, -1 for a category that is not known.
function code(value, { kind, places, origin, form }) {
  if (value === null || value === undefined || Number.isNaN(value)) return NaN;
  if (value === Infinity || value === -Infinity) throw new RangeError("Numbers must be finite.");
  const text = String(value).trim();
  if (typeof value === "string" && gaps.has(text.toLowerCase())) return NaN;
  if (kind === "category") return places.has(text) ? places.get(text) : -1;
  if (typeof value === "number") return kind === "date" ? value - origin : value;
  if (kind === "number") {
    if (form && typeof value === "string") return written(text, form);
    if (/^(true|false)$/i.test(text)) return text.toLowerCase() === "true" ? 1 : 0;
    return number.test(text) ? Number(text) : NaN;
  }
  if (value instanceof Date) return value.getTime() / 864e5 - origin;
  const found = new RegExp(`^${form}$`, "i").exec(text);
  if (!found) return NaN;
  const { Y, m, b, d, H, I, p, M = 0, S = 0 } = found.groups;
  const month = b ? months.indexOf(b.toLowerCase()) : m - 1;
  const start = new Date(Date.UTC(Y, month, d));
  if (start.getUTCFullYear() !== +Y || start.getUTCMonth() !== month || month < 0) return NaN;
  const hour = I ? (I % 12) + (/p/i.test(p) ? 12 : 0) : H || 0;
  if (hour > 23 || M > 59 || S >= 60 || I > 12) return NaN;
  return start.getTime() / 864e5 - origin + (+hour + (+M + S / 60) / 60) / 24;
}

const filled = (x, middle) => (Number.isNaN(x) ? middle : x);
const wrapped = (x, n) => x - n * Math.floor(x / n);

const parts = {
  filled: ({ middle, centre, unit }) => (x) => [(filled(x, middle) - centre) / unit],
  flag: () => (x) => [Number.isNaN(x) ? 1 : 0],
  curve: ({ levels, averages }) => (x) => {
    const [, n] = averages.shape;
    const row = (i) => averages.subarray(i * n, (i + 1) * n);
    if (Number.isNaN(x)) return row(levels.length);
    let i = 0;
    while (i < levels.length && levels[i] <= x) i++;
    if (i === 0) return row(0);
    if (i === levels.length) return row(i - 1);
    const share = (x - levels[i - 1]) / (levels[i] - levels[i - 1]);
    const above = row(i);
    return Array.from(row(i - 1), (a, k) => a + share * (above[k] - a));
  },
  look: ({ vectors }) => (x) => {
    const [, n] = vectors.shape;
    const known = vectors.shape[0] - 2;
    const place = Number.isNaN(x) ? known + 1 : x >= 0 && x < known ? x : known;
    return vectors.subarray(place * n, (place + 1) * n);
  },
  wave: ({ middle, period, phase }) => (x) => {
    const angle = 2 * Math.PI * wrapped(phase + filled(x, middle) / period, 1);
    return [Math.sin(angle), Math.cos(angle)];
  },
  week: ({ middle, first }) => (x) => {
    const day = wrapped(Math.floor(filled(x, middle)) + first, 7);
    return Array.from({ length: 7 }, (_, i) => (i === day ? 1 : 0));
  },
};

steps.encode = ({ parts: given }) => {
  const ready = given.map(({ type, column, ...rest }) => [column, parts[type](rest)]);
  return (x) => Float64Array.from(ready.flatMap(([column, part]) => Array.from(part(x[column]))));
};

// Rows are objects with the names of columns, or arrays in the order of `columns`.
function codes(rows) {
  if (!Array.isArray(rows)) throw new TypeError("Rows must be an array. Wrap a single row.");
  return rows.map((row, i) => {
    if (typeof row !== "object" || row === null)
      throw new TypeError(`Rows must be objects or arrays. Row ${i} is ${row}.`);
    if (Array.isArray(row) && row.length !== columns.length)
      throw new RangeError(`Rows must have ${columns.length} values. Row ${i} has ${row.length}.`);
    return columns.map((column, k) => {
      if (Array.isArray(row)) return code(row[k], column);
      if (!Object.hasOwn(row, column.name))
        throw new RangeError(`Rows must have all columns. Row ${i} has no ${column.name}.`);
      return code(row[column.name], column);
    });
  });
}
{% else %}
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
{% endif %}

const ready = (several) => several.map(({ type, ...parts }) => steps[type](parts));
const through = (several) => (x) => several.reduce((row, step) => step(row), x);
// An ensemble: the sum of several branches.
steps.sum = ({ branches }) => {
  const each = branches.map((branch) => through(ready(branch)));
  return (x) =>
    each.map((branch) => branch(x)).reduce((sum, y) => sum.map((value, i) => value + y[i]));
};
const made = ready(model.steps);

/** What the network answers to each row: logits of classes or labels, or plain numbers. */
export function outputs(rows) {
  const given = codes(rows);
  return given.map((row) => Array.from(made.reduce((x, step) => step(x), Float64Array.from(row))));
}

{% if task == "classification" %}
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
{% elif task == "multi-label" %}
/** The probability of every label. */
export function predictProba(rows) {
  return outputs(rows).map((z) => z.map((value) => 1 / (1 + Math.exp(-value))));
}

/** For every label 1 if it is there, else 0. */
export function predict(rows) {
  return outputs(rows).map((z) => z.map((value) => (value > 0 ? 1 : 0)));
}
{% else %}
/** The numbers of each row: one, or an array of several. */
export function predict(rows) {
  const { low, high } = model;
  return outputs(rows).map((z) => {
    const y = low ? z.map((v, i) => Math.min(high[i], Math.max(low[i], v))) : z;
    return y.length === 1 ? y[0] : y;
  });
}
{% endif %}
