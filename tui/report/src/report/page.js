"use strict";
(() => {
  document.documentElement.classList.add("js");

  // Tables: a click on a heading sorts by what its cells hold (data-v), a second one turns the order around. The first rows are markup, the
  // others data, of which rows are made as they come into sight.
  const PAGE = 200;
  const plain = html => html.replace(/<[^>]*>/g, " ").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&#39;/g, "'").replace(/&amp;/g, "&");
  const tables = [...document.querySelectorAll("table.data")].map(table => {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], more = table.parentNode.querySelector("script.more");
    const names = heads.map(head => head.textContent);
    const worth = (raw, text) => {
      const shown = raw ?? text, number = Number(shown);
      return shown === "" ? -Infinity : Number.isNaN(number) ? shown : number;
    };
    const named = tr => { [...tr.cells].forEach((cell, i) => { cell.dataset.h = names[i]; }); return tr; };
    const rows = [...body.rows].map(tr => ({
      tr: named(tr), id: tr.id, text: tr.textContent.toLowerCase(), values: [...tr.cells].map(c => worth(c.dataset.v, c.textContent.trim())),
    }));
    for (const [id, cells] of more ? JSON.parse(more.textContent) : []) {
      rows.push({
        cells, id, text: cells.map(([, , html]) => plain(html)).join(" ").toLowerCase(), values: cells.map(([, v, html]) => worth(v, plain(html).trim())),
      });
    }
    const made = row => {
      if (!row.tr) {
        row.tr = document.createElement("tr");
        if (row.id) row.tr.id = row.id;
        for (const [name, v, html] of row.cells) {
          const cell = row.tr.insertCell();
          if (name) cell.className = name;
          if (v !== null) cell.dataset.v = v;
          // markup of this page's own making, in which names are escaped
          cell.innerHTML = html;
        }
        named(row.tr);
      }
      return row.tr;
    };
    let order = rows, wanted = "", count = body.rows.length;
    const chosen = () => wanted ? order.filter(row => row.text.includes(wanted)) : order;
    const draw = () => body.replaceChildren(...chosen().slice(0, count).map(made));
    const grow = least => {
      const all = chosen(), from = count;
      if (from >= all.length) return;
      count = Math.max(from + PAGE, least);
      body.append(...all.slice(from, count).map(made));
    };
    const sentinel = document.createElement("div");
    table.after(sentinel);
    if (rows.length > count) new IntersectionObserver(seen => { if (seen.some(s => s.isIntersecting)) grow(0); }, { rootMargin: "400px" }).observe(sentinel);
    for (const button of table.querySelectorAll("th button")) {
      button.addEventListener("click", () => {
        const head = button.closest("th"), index = head.cellIndex, down = head.getAttribute("aria-sort") !== "descending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
        order = [...rows].sort((a, b) => down ? compare(b.values[index], a.values[index]) : compare(a.values[index], b.values[index]));
        draw();
      });
    }
    return {
      // how many rows have the text; shows only these
      search: text => { wanted = text; draw(); return chosen().length; },
      // shows the row of a link, if it is one of these
      reveal: id => {
        const place = order.findIndex(row => row.id === id);
        if (place < 0) return false;
        if (wanted && !order[place].text.includes(wanted)) { wanted = ""; draw(); }
        grow(place + 1);
        return true;
      },
      all: () => grow(rows.length),
    };
  });

  // Search: rows and findings that have the text.
  const field = document.getElementById("search"), hits = document.getElementById("hits");
  const search = () => {
    const text = field.value.trim().toLowerCase();
    let found = tables.reduce((sum, table) => sum + table.search(text), 0);
    for (const finding of document.querySelectorAll("details.finding")) {
      const has = !text || finding.textContent.toLowerCase().includes(text);
      finding.classList.toggle("hidden", !has);
      found += has ? 1 : 0;
    }
    hits.textContent = text ? `${found.toLocaleString("en")} found` : "";
  };
  field.addEventListener("input", search);

  // Links: to rows too that are not made yet, or not shown.
  const follow = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    if (!id) return;
    if (!document.getElementById(id) && tables.some(table => table.reveal(id))) document.getElementById(id)?.scrollIntoView();
  };
  window.addEventListener("hashchange", follow);
  follow();

  // Paper: everything that is folded or not made yet.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    tables.forEach(table => table.all());
    folded = [...document.querySelectorAll("details.finding:not([open]), details.ladder:not([open])")];
    folded.forEach(finding => { finding.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach(finding => { finding.open = false; }));

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
    const values = plot.querySelector("details.values");
    values.addEventListener("toggle", () => {
      if (!values.open || values.querySelector("table")) return;
      const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
      for (const name of ["time", ...data.series]) {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = name;
        head.append(cell);
      }
      data.x.forEach((x, i) => {
        const row = body.insertRow();
        row.insertCell().textContent = time(at(x));
        data.series.forEach((_, s) => { row.insertCell().textContent = amount(data.y[s][i], data.unit); });
      });
      const box = document.createElement("div");
      box.className = "scroll";
      box.tabIndex = 0;
      box.append(table);
      values.append(box);
    });
    plot.querySelector("[data-zoom=in]").addEventListener("click", () => zoom(0.5));
    plot.querySelector("[data-zoom=out]").addEventListener("click", () => zoom(2));
    plot.querySelector("[data-zoom=all]").addEventListener("click", () => show(whole));
  }
})();
