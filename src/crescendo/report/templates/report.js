"use strict";
// Draws the charts in the colours of the theme, keeps all charts over time zoomed to the same range, and explains words.

const root = document.documentElement;
const figures = JSON.parse(document.getElementById("figures").textContent);
const plots = [...document.querySelectorAll("[data-chart]")];
const linked = plots.filter(({ dataset: { chart } }) => ["rate", "latency", "backlog"].includes(chart) || /^(inside|time)-/.test(chart));
const rescoped = {}; // name -> a figure that stands for a part of the run
// On a touch screen dragging must scroll the page, so charts have neither zoom nor buttons there.
const touch = matchMedia("(pointer: coarse)").matches;

async function unpacked(base64) {
  const text = atob(base64);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function unpackPlotly() {
  const script = document.createElement("script");
  script.textContent = await unpacked(document.getElementById("plotly").textContent);
  document.head.append(script);
}

function themed(name, strip) {
  const style = getComputedStyle(root);
  const colour = (tone) => style.getPropertyValue(`--${tone}`).trim();
  const { data, layout } = structuredClone(rescoped[name] ?? figures[name]);
  for (const trace of data) {
    const own = colour(trace.meta.tone);
    trace.line.color = own;
    trace.marker.color = own;
    if (trace.fill) trace.fillcolor = `${own}26`;
  }
  const axis = {
    gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"),
    tickfont: { color: colour("soft") }, automargin: true,
  };
  const font = { color: colour("text"), family: getComputedStyle(document.body).fontFamily, size: 12 };
  for (const side of ["xaxis", "yaxis"]) {
    const title = { ...layout[side].title, standoff: 12, font: { color: colour("soft"), size: 12 } };
    const zerolinecolor = layout[side].zeroline ? colour("muted") : axis.zerolinecolor;
    layout[side] = { ...axis, zerolinecolor, ...layout[side], title };
  }
  for (const shape of layout.shapes ?? []) {
    const tones = { gap: `${colour("invalid")}33`, outage: `${colour("fail")}30`, bracket: `${colour("accent")}38`, fault: `${colour("accent")}20` };
    const fillcolor = tones[shape.name] ?? colour("shade");
    // An outage of a tenth of a second is narrower than a pixel in a long run; its outline is not.
    const framed = shape.name === "outage" || shape.name === "fault";
    const line = framed ? { width: 1, color: fillcolor } : { width: 0 };
    Object.assign(shape, { fillcolor, line, layer: "below" });
  }
  for (const label of layout.annotations ?? []) {
    Object.assign(label, { y: 1, yref: "paper", yanchor: "top", showarrow: false, font: { color: colour("soft"), size: 11 } });
  }
  if (strip) {
    // Stacked charts align the same second vertically and need no axis title each.
    delete layout.xaxis.title;
    layout.yaxis.automargin = data[0].type === "bar"; // the names of bars need their full width
  }
  return [data, {
    ...layout, font, dragmode: touch ? false : "zoom", uirevision: "kept",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: strip ? { l: 78, r: 12, t: 6, b: 26 } : { l: 58, r: 12, t: 6, b: 46 }, showlegend: true,
    legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", traceorder: "normal" },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("text") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("text") },
  }];
}

// A chart in a closed fold has no size yet: it is drawn when the fold is opened.
const visible = (plot) => !plot.closest("details:not([open])");

async function drawOne(plot) {
  const config = { displaylogo: false, displayModeBar: touch ? false : "hover", responsive: true, modeBarButtons: [["toImage", "resetScale2d"]] };
  const first = !plot.layout;
  await Plotly.react(plot, ...themed(plot.dataset.chart, plot.classList.contains("strip")), config);
  if (first && linked.includes(plot)) await link(plot);
}

const draw = () => Promise.all(plots.filter(visible).map(drawOne));

async function link(plot) {
  const others = () => linked.filter((other) => other !== plot && other.layout);
  plot.on("plotly_relayout", () => {
    const wanted = plot.layout.xaxis.range;
    dispatchEvent(new CustomEvent("timerange", { detail: [...wanted] }));
    // Updating only charts with a different range ends the cascade of relayout events.
    const outdated = others().filter((other) => other.layout.xaxis.range.some((end, i) => end !== wanted[i]));
    for (const other of outdated) Plotly.relayout(other, { "xaxis.range": [...wanted] });
  });
  const [shown] = others();
  if (shown) await Plotly.relayout(plot, { "xaxis.range": [...shown.layout.xaxis.range] });
}

function drawUnfolded() {
  for (const fold of document.querySelectorAll("details")) {
    fold.addEventListener("toggle", () => {
      if (fold.open && window.Plotly) plots.filter((plot) => fold.contains(plot) && !plot.layout).forEach(drawOne);
    });
  }
}

// Tooltips of our own: those of the browser appear late, and neither on a touch screen nor for the keyboard.
function explainWords() {
  const tip = Object.assign(document.createElement("div"), { id: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  for (const word of document.querySelectorAll("abbr[title]")) {
    word.dataset.tip = word.title;
    word.removeAttribute("title");
    word.tabIndex = 0;
    word.setAttribute("aria-describedby", "tip");
  }
  const show = ({ target }) => {
    const word = target.closest?.("abbr[data-tip]");
    tip.hidden = !word;
    if (!word) return;
    tip.textContent = word.dataset.tip;
    const at = word.getBoundingClientRect(), room = root.clientWidth - tip.offsetWidth - 8;
    const below = at.bottom + 6, above = at.top - tip.offsetHeight - 6;
    tip.style.left = `${Math.max(8, Math.min(at.left, room))}px`;
    tip.style.top = `${below + tip.offsetHeight > innerHeight && above > 0 ? above : below}px`;
  };
  for (const event of ["mouseover", "focusin"]) document.addEventListener(event, show);
  for (const event of ["mouseout", "focusout", "scroll"]) addEventListener(event, () => { tip.hidden = true; }, true);
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") tip.hidden = true; });
}

function setTheme(theme) {
  root.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "Light theme" : "Dark theme";
  return window.Plotly ? draw() : Promise.resolve();
}

function followTheme() {
  document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (now) => setTheme(now.matches ? "dark" : "light"));
  // In a frame of the web server, the page around it says which theme a person chose.
  addEventListener("message", ({ source, data }) => {
    if (source === parent && parent !== window && ["dark", "light"].includes(data?.theme)) setTheme(data.theme);
  });
  // On paper the background is white and nothing can be expanded.
  let before = root.dataset.theme;
  let folded = [];
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const each of folded) each.open = true;
    setTheme("light");
  });
  addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
    setTheme(before);
  });
  const paper = location.hash === "#print"; // a program prints: it waits for what is drawn, not for events
  if (paper) for (const each of document.querySelectorAll("details")) each.open = true;
  setTheme(paper ? "light" : root.dataset.theme);
}

function offerCopy() {
  const button = document.getElementById("copy");
  button?.addEventListener("click", async () => {
    const source = document.getElementById("command");
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      // Without permission for the clipboard, select the text, so that the reader can copy it.
      getSelection().selectAllChildren(source);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

function markSection() {
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      for (const [id, a] of links) {
        if (id === entry.target.id) a.setAttribute("aria-current", "location");
        else a.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  for (const id of links.keys()) watcher.observe(document.getElementById(id));
}

async function begin() {
  followTheme();
  offerCopy();
  markSection();
  drawUnfolded();
  explainWords();
  try {
    if (plots.length) {
      await unpackPlotly();
      await draw();
    }
  } catch (error) {
    for (const plot of plots) {
      plot.classList.add("broken");
      plot.textContent = `This chart needs a browser from 2023 or later (${error.message}). Every number is also in the tables.`;
    }
  }
  root.dataset.ready = "yes";
}

begin();
