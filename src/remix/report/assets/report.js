"use strict";
// Draws the charts with uPlot, fills the heat maps, and lets the reader choose. The page is complete without it.
(() => {
  const root = document.documentElement;
  const { charts, matrices } = JSON.parse(document.getElementById("content-data").textContent);
  const drawn = new Map(); // figure -> chart on it
  document.querySelector(".without-script").hidden = true;
  document.querySelectorAll(".needs-script").forEach((element) => { element.hidden = false; });
  // The charts show the same as the numbers; of losses and likelihood most readers need nothing.
  document.querySelectorAll("details.numbers, details.fold").forEach((part) => { part.open = false; });

  // --- colours ---

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const faint = (rgb, share) => rgb.replace("rgb(", "rgba(").replace(")", `, ${share})`);

  // --- numbers ---

  const shown = (value) => {
    if (value == null) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 0.001 || size >= 1e5)) return value.toExponential(2);
    return size >= 10 ? value.toFixed(1) : value.toPrecision(3);
  };
  const drawable = (values, log) => (log ? values.map((v) => (v > 0 ? v : null)) : values);

  // --- charts ---

  const FONT = "12px system-ui, sans-serif";
  const pen = document.createElement("canvas").getContext("2d");
  const breadth = (text) => { pen.font = FONT; return pen.measureText(text).width; };
  const lastOf = (values) => values.findLastIndex((value) => value != null);
  const room = (spec, width) => Math.min(0.34 * width, 12 + Math.max(...spec.lines.map((line) => breadth(line.name))));

  function options(spec, size) {
    const ink = colour("quiet");
    const grid = { stroke: colour("line"), width: 1 };
    const font = FONT;
    const series = [{
      label: spec.x,
      value: (u, value) => { // where the cursor is, or at the end
        const at = value ?? spec.xs[spec.xs.length - 1];
        return spec.places.length ? spec.places[at - 1] : String(at);
      },
    }];
    const bands = [];
    const ends = []; // of every line: the place of its series
    const family = [null]; // of every series: the places of those that are shown and hidden together
    for (const line of spec.lines) {
      const stroke = colour(`c${line.colour % 8}`);
      const dash = line.dashed ? [6, 5] : line.colour >= 8 ? [2, 3] : undefined;
      const at = series.length;
      const parts = [at];
      ends.push(at);
      series.push({
        label: line.dashed ? `${line.name} (dashed)` : line.name, stroke, dash, width: 2, points: { show: spec.count <= 30, size: 6, fill: stroke },
        value: (u, value, i, k) => {
          const at = k ?? line.mean.length - 1;
          const mean = line.mean[at];
          if (mean == null || !line.high) return shown(mean);
          const text = shown(mean);
          const spread = line.high[at] - mean;
          return `${text} ± ${text.includes("e") ? shown(spread) : spread.toFixed((text.split(".")[1] ?? "").length)}`;
        },
      });
      family.push(parts);
      if (line.low) {
        for (const edge of ["high", "low"]) {
          parts.push(series.length);
          series.push({ label: `${line.name}, ${edge}`, class: "edge", stroke: "transparent", width: 0, points: { show: false } });
          family.push(parts);
        }
        bands.push({ series: [at + 1, at + 2], fill: faint(stroke, 0.16) });
      }
    }
    return {
      ...size, series, bands, padding: [null, (u) => room(spec, u.width), null, null],
      scales: {
        x: { time: false, range: (u, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
        y: spec.log ? { distr: 3 } : spec.bounds ? { range: spec.bounds } : {},
      },
      axes: [
        { stroke: ink, grid, ticks: grid, font, label: spec.x, labelSize: 22, labelFont: font, size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
        {
          stroke: ink, grid, ticks: grid, font, label: spec.y, labelSize: 22, labelFont: font, size: 54,
          values: (u, ticks) => ticks.map((v) => (v == null ? "" : spec.log ? Number(v.toPrecision(2)).toString() : Number(v.toPrecision(6)).toString())),
        },
      ],
      cursor: { drag: { x: spec.count > 12, y: false }, points: { size: 8 } },
      legend: { live: true, markers: { width: 0, fill: (u, i) => u.series[i].stroke() } },
      hooks: {
        draw: [(u) => drawMarks(u, spec.marks, ink), (u) => drawNames(u, spec, ends)],
        setSeries: [(u, index, change) => {
          if (index == null || change.show == null) return;
          for (const other of family[index]) {
            if (u.series[other].show !== change.show) u.setSeries(other, { show: change.show });
          }
        }],
      },
    };
  }

  function drawMarks(u, marks, ink) {
    if (marks.length < 2) return;
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.strokeStyle = ctx.fillStyle = ink;
    ctx.textBaseline = "top";
    ctx.textAlign = "right";
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    let free = -Infinity; // labels do not lie on each other
    for (const mark of marks) {
      const x = u.valToPos(mark.at, "x", true);
      if (x < bbox.left - 1 || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (x < free || x + 14 * ratio > bbox.left + bbox.width) continue;
      free = x + 13 * ratio;
      ctx.save(); // upwards, beside its line
      ctx.translate(x + 3 * ratio, bbox.top + 3 * ratio);
      ctx.rotate(-Math.PI / 2);
      ctx.fillText(mark.name, 0, 0);
      ctx.restore();
    }
    ctx.restore();
  }

  // The name of every line at its end, moved apart where lines end close together.
  function drawNames(u, spec, ends) {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    const height = 14 * ratio;
    const names = spec.lines.flatMap((line, i) => {
      const at = ends[i];
      const end = lastOf(u.data[at]);
      if (end < 0 || !u.series[at].show) return [];
      return [{ line, y: u.valToPos(u.data[at][end], "y", true) }];
    }).sort((one, other) => one.y - other.y);
    const top = bbox.top + height / 2;
    const bottom = bbox.top + bbox.height;
    names.forEach((name, i) => { name.y = Math.max(name.y, i ? names[i - 1].y + height : top); });
    names.reverse().forEach((name, i) => { name.y = Math.min(name.y, i ? names[i - 1].y - height : bottom); });
    const most = room(spec, u.width) - 10;
    ctx.save();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const { line, y } of names) {
      let text = line.name;
      while (breadth(text) > most && text.length > 2) text = `${text.slice(0, -2)}…`;
      ctx.fillStyle = colour(`c${line.colour % 8}`);
      ctx.fillText(text, bbox.left + bbox.width + 8 * ratio, y);
    }
    ctx.restore();
  }

  const sizeOf = (figure) => ({
    width: figure.querySelector(".plot").clientWidth || 320,
    height: figure.classList.contains("broad") ? 320 : 280,
  });

  function draw(figure) {
    const plots = charts[figure.dataset.chart];
    const key = [...figure.querySelectorAll("select")].map((select) => select.value).join("|");
    const place = figure.querySelector(".plot");
    drawn.get(figure)?.destroy();
    drawn.delete(figure);
    const spec = plots[key];
    if (!spec) {
      place.textContent = "There is none of this method in this task.";
      return;
    }
    place.textContent = "";
    const data = [spec.xs];
    for (const line of spec.lines) {
      data.push(drawable(line.mean, spec.log));
      if (line.low) data.push(drawable(line.high, spec.log), drawable(line.low, spec.log));
    }
    const chart = new uPlot(options(spec, sizeOf(figure)), data, place);
    drawn.set(figure, chart);
    place.tabIndex = 0;
    place.setAttribute("role", "group");
    const title = figure.querySelector("h3").textContent;
    place.setAttribute("aria-label", `${title}, a chart. Left and right arrow keys read it. The table of its numbers follows.`);
    chart.root.querySelectorAll(".u-legend .u-series").forEach((row, i) => {
      if (i === 0) return;
      const label = row.querySelector("th");
      label.tabIndex = 0;
      label.setAttribute("role", "button");
      label.title = "show or hide";
      label.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        label.click();
      });
    });
  }

  function step(figure, event) {
    const chart = drawn.get(figure);
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!chart || !by || event.target !== figure.querySelector(".plot")) return;
    event.preventDefault();
    const xs = chart.data[0];
    const now = chart.cursor.idx ?? (by > 0 ? -1 : xs.length);
    const next = Math.min(xs.length - 1, Math.max(0, now + by));
    chart.setCursor({ left: chart.valToPos(xs[next], "x"), top: chart.over.clientHeight / 2 });
  }

  const figures = [...document.querySelectorAll("figure.chart")];
  const redraw = () => figures.forEach(draw);
  for (const figure of figures) {
    figure.querySelectorAll("select").forEach((select) => select.addEventListener("change", () => draw(figure)));
    figure.querySelector(".plot").addEventListener("keydown", (event) => step(figure, event));
  }
  redraw();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone's bars come and go
    width = window.innerWidth;
    fit();
  });
  function fit() {
    for (const [figure, chart] of drawn) {
      chart.setSize(sizeOf(figure));
    }
  }
  document.querySelectorAll("details.fold").forEach((fold) => fold.addEventListener("toggle", fit));

  // --- heat maps ---

  document.querySelectorAll("select.seed").forEach((select) => select.addEventListener("change", () => {
    const group = select.dataset.group;
    for (const table of document.querySelectorAll(`table.heat[data-group="${group}"]`)) {
      const rows = matrices[group][table.dataset.matrix].values[select.value] || [];
      const digits = table.classList.contains("small") ? 0 : 1;
      [...table.tBodies[0].rows].forEach((row, after) => [...row.cells].slice(1).forEach((cell, task) => {
        const value = rows[after]?.[task];
        cell.textContent = value == null ? "" : value.toFixed(digits);
        cell.className = value == null ? "none" : value > 70 ? "high" : value > 57 ? "mid" : "";
        cell.style.setProperty("--share", value ?? 0);
        cell.title = value == null ? "" : `after task ${after + 1}, task ${task + 1}: ${value.toFixed(1)} %`;
      }));
    }
  }));

  // --- dreams ---

  document.querySelectorAll("section.dreams").forEach((section) => {
    const picks = [...section.querySelectorAll("select[data-pick]")];
    const wanted = (name) => picks.find((pick) => pick.dataset.pick === name)?.value ?? "";
    const fits = (name, value) => wanted(name) === "" || wanted(name) === value;
    const show = () => section.querySelectorAll("details.grid").forEach((grid) => {
      grid.hidden = !fits("method", grid.dataset.method) || !fits("task", grid.dataset.task);
      const strips = [...grid.querySelectorAll("[data-class]")];
      strips.forEach((strip) => { strip.hidden = !fits("class", strip.dataset.class); });
      if (strips.length && strips.every((strip) => strip.hidden)) grid.hidden = true;
      grid.open = !grid.hidden;
    });
    const none = section.querySelector(".no-dreams");
    const update = () => {
      show();
      none.hidden = [...section.querySelectorAll("details.grid")].some((grid) => !grid.hidden);
    };
    picks.forEach((pick) => pick.addEventListener("change", update));
    update();
  });

  // --- light, dark, paper ---

  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  const remember = (theme) => { try { localStorage.setItem("remix-theme", theme); } catch { /* not from disk */ } };
  try { root.dataset.theme = localStorage.getItem("remix-theme") || ""; } catch { /* the same */ }
  if (!root.dataset.theme) delete root.dataset.theme;
  else redraw();
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    remember(root.dataset.theme);
    name();
    redraw();
  });
  system.addEventListener("change", () => { name(); redraw(); });
  name();

  let before; // printing
  window.addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details:not([open]):not([hidden])")] };
    root.dataset.theme = "light";
    before.closed.forEach((details) => { details.open = true; });
    redraw();
  });
  window.addEventListener("afterprint", () => {
    if (before.theme) root.dataset.theme = before.theme;
    else delete root.dataset.theme;
    before.closed.forEach((details) => { details.open = false; });
    redraw();
  });
})();
