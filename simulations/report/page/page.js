// What a reader can do on a report: hover, hide curves, change a scale, sort, filter, change colours.
// Nothing is computed here: every value stands in the page already.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  // Light and dark.
  const root = document.documentElement;
  const themes = [["", "Colours: automatic"], ["light", "Colours: light"], ["dark", "Colours: dark"]];
  let theme = 0;
  const themeButton = make("button", { type: "button", id: "theme", textContent: themes[0][1] });
  themeButton.addEventListener("click", () => {
    theme = (theme + 1) % themes.length;
    const [name, words] = themes[theme];
    if (name) root.dataset.theme = name;
    else delete root.dataset.theme;
    themeButton.textContent = words;
  });
  document.getElementById("tools").append(themeButton);

  // Curves: hidden in every figure and table at once.
  const hidden = new Set();
  const showCurves = () => {
    for (const element of all("svg [data-curve]")) element.classList.toggle("off", hidden.has(element.dataset.curve));
    for (const button of all(".legend button")) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.curve)));
    for (const apply of filters) apply();
  };
  const filters = [];
  const fade = (name) => {
    for (const element of all("svg [data-curve]")) element.classList.toggle("faded", name !== null && element.dataset.curve !== name);
  };
  for (const entry of all(".legend li")) {
    const name = entry.dataset.curve;
    const button = make("button", { type: "button", title: "Hide or show" }, ...entry.childNodes);
    button.dataset.curve = name;
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      fade(null);
      showCurves();
    });
    button.addEventListener("pointerenter", () => { if (!hidden.has(name)) fade(name); });
    button.addEventListener("pointerleave", () => fade(null));
    entry.append(button);
  }

  // Logarithmic or linear.
  for (const figure of all("figure")) {
    const drawings = all(".drawing", figure);
    if (drawings.length < 2) continue;
    const other = () => drawings.find((drawing) => drawing.hidden).dataset.scale;
    const button = make("button", { type: "button", className: "switch" });
    const name = () => { button.textContent = `Show ${other()} scale`; };
    button.addEventListener("click", () => {
      for (const drawing of drawings) drawing.hidden = !drawing.hidden;
      name();
    });
    name();
    figure.querySelector("figcaption").after(button);
  }

  // Values where the pointer is, or the arrow keys.
  const tip = document.getElementById("tip");
  const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", "7");
  const pointsOf = (svg) => all(".curve:not(.off)", svg).flatMap((curve) => {
    const texts = JSON.parse(curve.dataset.texts);
    const places = curve.querySelector(".line").getAttribute("d").slice(1).split("L").map((pair) => pair.split(" ").map(Number));
    const level = texts.length < places.length;
    return places.map(([x, y], index) => ({ x, y, level, text: texts[level ? 0 : index], again: level && index > 0 }));
  });
  const forget = () => { tip.hidden = true; ring.remove(); };
  const tell = (svg, point) => {
    ring.setAttribute("cx", point.x);
    ring.setAttribute("cy", point.y);
    svg.append(ring);
    tip.textContent = point.text;
    tip.hidden = false;
    const at = ring.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.right + 8), innerWidth - tip.offsetWidth - 8);
    const above = at.top - tip.offsetHeight - 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : at.bottom + 8}px`;
  };
  for (const svg of all("figure .drawing svg")) {
    let at = -1;
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("pointermove", (event) => {
      const matrix = svg.getScreenCTM();
      if (!matrix) return;
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      let best = null, least = 40 * 40;
      for (const point of pointsOf(svg)) {
        const distance = point.level ? 4 * (point.y - y) ** 2 + 100 : (point.x - x) ** 2 + (point.y - y) ** 2;
        if (distance < least) { least = distance; best = point.level ? { ...point, x } : point; }
      }
      if (best) tell(svg, best);
      else forget();
    });
    svg.addEventListener("pointerleave", forget);
    svg.addEventListener("blur", forget);
    svg.addEventListener("keydown", (event) => {
      const points = pointsOf(svg).filter((point) => !point.again);
      if (event.key === "Escape") return forget();
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || !points.length) return;
      event.preventDefault();
      at = (at + step + points.length) % points.length;
      tell(svg, points[at]);
    });
  }
  addEventListener("scroll", forget, { passive: true });

  // Tables: sorted by what stands behind a cell, filtered by any word, by ε, and by hidden curves.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const value = "value" in cell.dataset ? JSON.parse(cell.dataset.value) : null;
    return value === "inf" ? Infinity : value;
  };
  const order = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b));
  };
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sign = down ? -1 : 1;
        body.append(...rows.slice().sort((a, b) => {
          const [first, second] = [valueOf(a, column), valueOf(b, column)];
          return first === null || second === null ? order(first, second) : sign * order(first, second);
        }));
      });
    });
    const count = make("span", { role: "status" });
    const words = make("input", { type: "search" });
    const controls = make("div", { className: "controls" }, make("label", {}, "Filter ", words));
    const budgets = heads.findIndex((head) => head.textContent === "ε");
    let budget = null;
    if (budgets >= 0) {
      const texts = [...new Set(rows.map((row) => row.cells[budgets].textContent))];
      if (texts.length > 2) {
        budget = make("select", {}, make("option", { value: "", textContent: "all" }), ...texts.map((text) => make("option", { value: text, textContent: text })));
        controls.append(make("label", {}, "ε ", budget));
      }
    }
    controls.append(count);
    table.parentElement.before(controls);
    const apply = () => {
      const wanted = words.value.trim().toLowerCase();
      let seen = 0;
      for (const row of rows) {
        const shown = !hidden.has(row.dataset.curve)
          && row.textContent.toLowerCase().includes(wanted)
          && (!budget || !budget.value || row.cells[budgets].textContent === budget.value);
        row.hidden = !shown;
        seen += shown;
      }
      count.textContent = seen === rows.length ? `${seen} rows` : `${seen} of ${rows.length} rows`;
    };
    filters.push(apply);
    words.addEventListener("input", apply);
    if (budget) budget.addEventListener("change", apply);
    apply();
  }

  // Paper shows what is folded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("section > details:not([open])");
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of folded) each.open = false; });
})();
