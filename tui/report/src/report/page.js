"use strict";
(() => {
  document.documentElement.classList.add("js");

  // Tables: a click on a heading sorts by what its cells hold (data-v), a second one turns the order around.
  const value = (row, index) => {
    const cell = row.cells[index];
    const raw = cell.dataset.v ?? cell.textContent.trim();
    const number = Number(raw);
    return raw === "" ? -Infinity : Number.isNaN(number) ? raw : number;
  };
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th"), body = head.closest("table").tBodies[0];
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map(row => [value(row, head.cellIndex), row]);
      const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
      rows.sort((a, b) => down ? compare(b[0], a[0]) : compare(a[0], b[0]));
      body.append(...rows.map(([, row]) => row));
    });
  }

  // Plots: drag to zoom, double click or "all" to see everything again. Coordinates run from 0 to 1000 over the whole width.
  const three = v => v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2);
  const time = s => s === 0 ? "0" : Math.abs(s) < 1e-4 ? three(s * 1e6) + " µs" : Math.abs(s) < 1 ? three(s * 1e3) + " ms" : three(s) + " s";
  const amount = (v, unit) => {
    if (unit !== "B/s") return v.toLocaleString("en") + (unit ? " " + unit : "");
    for (const [name, size] of [["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3]]) if (v >= size) return three(v / size) + " " + name;
    return three(v) + " B/s";
  };
  for (const plot of document.querySelectorAll("figure.plot")) {
    const area = plot.querySelector(".area"), svg = area.querySelector("svg"), ticks = plot.querySelector(".x").children, read = plot.querySelector(".read");
    const data = JSON.parse(plot.querySelector("script").textContent);
    const at = x => data.log ? data.from * Math.pow(data.to / data.from, x / 1000) : data.from + (data.to - data.from) * x / 1000;
    const whole = [0, 1000];
    let view = whole;
    const show = next => {
      const least = 1, from = Math.max(0, Math.min(next[0], 1000 - least)), to = Math.min(1000, Math.max(next[1], from + least));
      view = [from, to];
      svg.setAttribute("viewBox", `${from} 0 ${to - from} 100`);
      [...ticks].forEach((tick, i) => { tick.textContent = time(at(from + (to - from) * i / (ticks.length - 1))); });
    };
    const zoom = factor => {
      const middle = (view[0] + view[1]) / 2, half = (view[1] - view[0]) / 2 * factor;
      show(half >= 500 ? whole : [Math.max(0, middle - half), Math.min(1000, middle + half)]);
    };
    const place = event => {
      const box = area.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    const across = part => view[0] + (view[1] - view[0]) * part;
    const select = document.createElement("div");
    select.className = "select";
    select.hidden = true;
    area.append(select);
    let start = null;
    area.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      start = place(event);
      // only a comfort: a drag may then leave the plot
      try { area.setPointerCapture(event.pointerId); } catch { start = place(event); }
    });
    area.addEventListener("pointermove", event => {
      const here = place(event);
      if (start !== null) {
        select.hidden = false;
        select.style.left = Math.min(start, here) * 100 + "%";
        select.style.width = Math.abs(here - start) * 100 + "%";
      }
      const x = across(here);
      let nearest = -1;
      data.x.forEach((px, i) => { if (nearest < 0 || Math.abs(px - x) < Math.abs(data.x[nearest] - x)) nearest = i; });
      if (nearest >= 0) {
        const parts = data.series.map((s, i) => `${s} ${amount(data.y[i][nearest], data.unit)}`);
        read.textContent = `${time(at(data.x[nearest]))}: ${parts.join(", ")}`;
      }
    });
    area.addEventListener("pointerup", event => {
      if (start === null) return;
      const [a, b] = [Math.min(start, place(event)), Math.max(start, place(event))];
      start = null;
      select.hidden = true;
      if (b - a > 0.01) show([across(a), across(b)]);
    });
    area.addEventListener("pointercancel", () => { start = null; select.hidden = true; });
    area.addEventListener("dblclick", () => show(whole));
    plot.querySelector("[data-zoom=in]").addEventListener("click", () => zoom(0.5));
    plot.querySelector("[data-zoom=out]").addEventListener("click", () => zoom(2));
    plot.querySelector("[data-zoom=all]").addEventListener("click", () => show(whole));
  }
})();
