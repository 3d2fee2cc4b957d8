// What the page does with the model above: `predict`, `predictProba`, `outputs`, `codes`, `steps`
// and `info` are the module's own, `page` and `nearestSteps` were written for this model.
{
  const find = (id) => document.getElementById(id);
  const make = (tag, text, given = {}) => {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    return Object.assign(node, given);
  };
  const isNumber = page.task === "regression";
  const names = page.task === "classification"
    ? info.classes.map(String)
    : Array.from({ length: info.outputs }, (_, i) =>
        isNumber ? (info.outputs === 1 ? "prediction" : `target ${i}`) : `label ${i}`);
  const DAY = 864e5;

  // Numbers as answers: probabilities, or one for each target.
  const answers = (rows) =>
    isNumber ? predict(rows).map((y) => (Array.isArray(y) ? y : [y])) : predictProba(rows);

  const short = (value) => {
    if (value === 0 || (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e7))
      return Number(value.toPrecision(4)).toLocaleString("en");
    return value.toExponential(2);
  };

  // ------------------------------------------------------------------ the answer and its bars

  const share = (value, i) => {
    if (!isNumber) return value;
    const [low, high] = page.range[i];
    return high > low ? (value - low) / (high - low) : 0.5;
  };

  function showAnswer(row) {
    const [values] = answers([row]);
    const best = values.indexOf(Math.max(...values));
    if (isNumber) find("answer").textContent = values.map(short).join(", ");
    else if (page.task === "classification") find("answer").textContent = names[best];
    else {
      const there = names.filter((_, i) => values[i] > 0.5);
      find("answer").textContent = there.length ? there.join(", ") : "no label";
    }
    const order = values.map((_, i) => i);
    if (values.length > 12) order.sort((a, b) => values[b] - values[a]);
    const table = make("table", null, { className: "bars" });
    for (const i of order.slice(0, 12)) {
      const line = make("tr");
      const bar = make("span");
      bar.style.width = `${100 * Math.min(1, Math.max(0, share(values[i], i)))}%`;
      const cell = make("td", null, { className: "bar" });
      cell.append(bar);
      const text = isNumber ? short(values[i]) : `${(100 * values[i]).toFixed(1)} %`;
      line.append(make("th", names[i]), cell, make("td", text));
      table.append(line);
    }
    find("bars").replaceChildren(table);
  }

  // ------------------------------------------------------------------ the nearest prototypes

  steps.near = ({ levels, factor, bias }) => (x) => {
    const sums = new Float64Array(bias.length);
    x.forEach((value, i) => {
      for (let j = 0; j < sums.length; j++) sums[j] += value * levels[i * sums.length + j];
    });
    return sums.map((sum, j) => sum * factor[j] + bias[j]);
  };
  const measured = nearestSteps.map(({ type, ...given }) => steps[type](given));

  function showNearest(row) {
    if (!measured.length) return;
    const [given] = codes([row]);
    const near = measured.reduce((x, step) => step(x), Float64Array.from(given));
    const order = Array.from(near.keys()).sort((a, b) => near[b] - near[a]).slice(0, 5);
    for (const old of document.querySelectorAll(".near")) old.classList.remove("near");
    find("nearest").replaceChildren(
      ...order.map((place) => {
        const figure = find(`prototype-${page.prototypes[place]}`);
        figure.classList.add("near");
        const link = make("a", null, { href: `#${figure.id}` });
        const picture = figure.querySelector("img");
        if (picture) link.append(make("img", null, { src: picture.src, alt: picture.alt }));
        link.append(make("span", figure.querySelector("figcaption").textContent));
        return link;
      }),
    );
  }

  // ------------------------------------------------------------------ a curve over one column

  const SVG = "http://www.w3.org/2000/svg";
  const drawn = (tag, given, text) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(given)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };

  function showCurve(row, place) {
    const control = page.controls[place];
    const legend = find("curve").querySelector(".legend");
    const many = control.kind === "category" || control.kind === "boolean";
    const points = control.kind === "category"
      ? control.values.slice(0, 30)
      : control.kind === "boolean"
        ? [0, 1]
        : Array.from({ length: 61 }, (_, i) => control.low + (i / 60) * (control.high - control.low));
    const found = answers(points.map((value) => row.map((own, i) => (i === place ? value : own))));
    const now = answers([row])[0];
    const top = now.indexOf(Math.max(...now));
    const lines = isNumber || names.length <= 6 ? names.map((_, i) => i) : [top];
    if (legend) legend.hidden = lines.length < 2;
    const all = found.flatMap((y) => lines.map((i) => y[i]));
    let low = isNumber ? Math.min(...all) : 0;
    let high = isNumber ? Math.max(...all) : 1;
    if (!(high > low)) [low, high] = [low - 1, high + 1];
    const width = 440, height = 220, left = 56, bottom = 34, end = 428, above = 10;
    const x = (i) => left + ((many ? i + 0.5 : i) / (points.length - (many ? 0 : 1))) * (end - left);
    const y = (value) => height - bottom - ((value - low) / (high - low)) * (height - bottom - above);
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img" });
    svg.append(drawn("title", {}, `Prediction by ${control.name}`));
    for (const share of [0, 0.5, 1]) {
      const value = low + share * (high - low);
      svg.append(drawn("line", { class: "grid", x1: left, x2: end, y1: y(value), y2: y(value) }));
      svg.append(drawn("text", { class: "end", x: left - 5, y: y(value) + 3 }, short(value)));
    }
    for (const i of lines) {
      const role = `s${i % 6}`;
      if (many)
        found.forEach((z, at) =>
          svg.append(drawn("circle", { class: role, fill: "currentColor", cx: x(at), cy: y(z[i]), r: 4 })));
      else {
        const path = found.map((z, at) => `${x(at).toFixed(1)},${y(z[i]).toFixed(1)}`).join(" ");
        svg.append(drawn("polyline", { class: `line ${role}`, points: path }));
      }
    }
    const text = (value) => (control.kind === "date" ? isoDay(value) : many ? String(value) : short(value));
    const marks = many && points.length <= 6 ? points.map((_, i) => i) : [0, points.length - 1];
    for (const at of marks)
      svg.append(drawn("text", {
        class: marks.length > 2 || at === 0 && many ? "mid" : at ? "end" : "",
        x: x(at), y: height - bottom + 15,
      }, text(points[at]).slice(0, 14)));
    if (!many) {
      const at = left + ((row[place] - control.low) / (control.high - control.low)) * (end - left);
      if (at >= left && at <= end)
        svg.append(drawn("line", { class: "line ideal", x1: at, x2: at, y1: above, y2: height - bottom }));
    }
    find("curve").replaceChildren(...(legend ? [legend] : []), svg);
  }

  const isoDay = (days) => new Date(days * DAY).toISOString().slice(0, 10);

  // ------------------------------------------------------------------ a table: sliders and lists

  function table() {
    const { controls } = page;
    const row = controls.map((c) => (c.kind === "category" ? c.values[c.typical] : c.typical));
    const order = find("controls").dataset.order.split(",").map(Number);
    const feature = find("feature");
    const show = () => {
      showAnswer(row);
      showNearest(row);
      showCurve(row, Number(feature.value));
    };
    const more = make("details");
    more.append(make("summary", `${Math.max(0, order.length - 12)} more columns`));
    order.forEach((place, rank) => {
      const control = controls[place];
      feature.append(make("option", control.name, { value: place }));
      const box = make("div", null, { className: "control" });
      const id = `control-${place}`;
      box.append(make("label", control.name, { htmlFor: id }));
      const set = (value) => {
        row[place] = value;
        show();
      };
      box.append(...inputs(control, id, set));
      (rank < 12 ? find("controls") : more).append(box);
    });
    if (order.length > 12) find("controls").append(more);
    feature.addEventListener("change", show);
    show();
  }

  function inputs(control, id, set) {
    if (control.kind === "category" || control.kind === "boolean") {
      const list = make("select", null, { id });
      const words = control.kind === "boolean" ? ["no", "yes"] : control.values;
      words.forEach((word, i) => list.append(make("option", word, { value: i })));
      list.value = String(Math.round(control.typical));
      list.addEventListener("change", () =>
        set(control.kind === "boolean" ? Number(list.value) : control.values[list.value]));
      return [list];
    }
    const { low, high, typical } = control;
    const slider = make("input", null, { id, type: "range", min: low, max: high, step: "any" });
    slider.value = typical;
    if (control.kind === "date") {
      const day = make("input", null, { type: "date", value: isoDay(typical) });
      day.addEventListener("input", () => {
        if (!day.value) return;
        slider.value = Date.parse(day.value) / DAY;
        set(Date.parse(day.value) / DAY);
      });
      slider.addEventListener("input", () => {
        day.value = isoDay(Number(slider.value));
        set(Math.round(Number(slider.value)));
      });
      return [slider, day];
    }
    const box = make("input", null, { type: "number", step: "any", value: Number(typical.toPrecision(5)) });
    box.setAttribute("aria-label", `${control.name}, as a number`);
    slider.addEventListener("input", () => {
      box.value = Number(Number(slider.value).toPrecision(5));
      set(Number(slider.value));
    });
    box.addEventListener("input", () => {
      if (box.value === "" || !Number.isFinite(Number(box.value))) return;
      slider.value = box.value;
      set(Number(box.value));
    });
    return [slider, box];
  }

  // ------------------------------------------------------------------ an image: draw it

  function image({ height, width, channels, low, high }) {
    const pad = find("pad");
    Object.assign(pad, { width, height });
    pad.style.aspectRatio = `${width} / ${height}`;
    const paper = pad.getContext("2d");
    const ink = new Float64Array(height * width);
    const pen = Math.max(0.8, Math.min(height, width) / 24);
    let last = null;

    const dot = (cx, cy) => {
      for (let i = 0; i < height; i++)
        for (let j = 0; j < width; j++) {
          const far = Math.hypot(j + 0.5 - cx, i + 0.5 - cy);
          const level = Math.max(0, Math.min(1, 1.35 - 0.75 * (far / pen)));
          ink[i * width + j] = Math.max(ink[i * width + j], level);
        }
    };
    const stroke = (x, y) => {
      const from = last ?? [x, y];
      const pieces = Math.max(1, Math.ceil(2 * Math.hypot(x - from[0], y - from[1])));
      for (let n = 1; n <= pieces; n++)
        dot(from[0] + ((x - from[0]) * n) / pieces, from[1] + ((y - from[1]) * n) / pieces);
      last = [x, y];
      show();
    };
    const centred = () => {
      let mass = 0, down = 0, across = 0;
      ink.forEach((value, at) => {
        mass += value;
        down += value * Math.floor(at / width);
        across += value * (at % width);
      });
      if (!mass || !find("centre").checked) return ink;
      const dy = Math.round((height - 1) / 2 - down / mass);
      const dx = Math.round((width - 1) / 2 - across / mass);
      return ink.map((_, at) => {
        const i = Math.floor(at / width) - dy, j = (at % width) - dx;
        return i >= 0 && j >= 0 && i < height && j < width ? ink[i * width + j] : 0;
      });
    };
    const show = () => {
      const pixels = paper.createImageData(width, height);
      ink.forEach((value, at) => pixels.data.set([255 * value, 255 * value, 255 * value, 255], 4 * at));
      paper.putImageData(pixels, 0, 0);
      if (!ink.some((value) => value > 0)) {
        find("answer").textContent = "Draw something";
        find("bars").replaceChildren();
        find("nearest")?.replaceChildren();
        return;
      }
      const row = Array.from(centred()).flatMap((value) =>
        Array(channels).fill(low + (high - low) * value));
      showAnswer(row);
      showNearest(row);
    };
    const at = (event) => {
      const { left, top, width: wide, height: tall } = pad.getBoundingClientRect();
      return [((event.clientX - left) / wide) * width, ((event.clientY - top) / tall) * height];
    };
    pad.addEventListener("pointerdown", (event) => {
      pad.setPointerCapture(event.pointerId);
      last = null;
      stroke(...at(event));
    });
    pad.addEventListener("pointermove", (event) => event.buttons && stroke(...at(event)));
    find("centre").addEventListener("change", show);
    find("clear").addEventListener("click", () => {
      ink.fill(0);
      show();
    });
    show();
  }

  // ------------------------------------------------------------------ the self-test

  function madeUp() {
    const [multiplier, increment, modulus, seed] = page.generator;
    let state = seed;
    const next = () => (state = (multiplier * state + increment) % modulus) / modulus;
    return page.answers.map(() =>
      page.controls.map(({ kind, low, high, values }) => {
        const u = next();
        if (kind === "category") return values[Math.floor(u * values.length)];
        if (kind === "boolean") return u >= 0.5 ? 1 : 0;
        return low + (high - low) * (page.image ? Math.max(0, 2 * u - 1) : u);
      }),
    );
  }

  function selfTest() {
    let worst = 0;
    answers(madeUp()).forEach((values, i) =>
      values.forEach((value, k) => {
        const wide = isNumber ? page.range[k][1] - page.range[k][0] || 1 : 1;
        worst = Math.max(worst, Math.abs(value - page.answers[i][k]) / wide);
      }),
    );
    const said = find("selftest");
    said.dataset.difference = worst;
    const good = worst <= 1e-4;
    said.className = good ? "" : "bad";
    said.textContent = `Self-test: on ${page.answers.length} made-up rows this page and Python ` +
      `differ by at most ${worst.toExponential(1)}${isNumber ? " of the range" : ""}` +
      (good ? "." : ", which is too much: do not trust the predictions above.");
  }

  document.querySelector(".live").hidden = false;
  if (page.image) image(page.image);
  else table();
  selfTest();
}
