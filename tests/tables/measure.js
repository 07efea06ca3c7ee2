// What is wrong with a report as it is drawn: a function of the least contrast of text with what is behind it.
((least) => {
  const box = (e) => e.getBoundingClientRect();
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const numbers = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) { return c; }
    }
    return [255, 255, 255];
  };
  const strength = (e) => { let s = 1; for (; e; e = e.parentElement) { s *= Number(getComputedStyle(e).opacity); } return s; };
  const contrast = (e) => {
    const style = getComputedStyle(e), under = behind(e), ink = numbers(e instanceof SVGElement ? style.fill : style.color);
    const s = strength(e) * (ink[3] === undefined ? 1 : ink[3]);
    const [a, b] = [light(ink.slice(0, 3).map((v, i) => s * v + (1 - s) * under[i])), light(under)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const own = (e) => Array.from(e.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim());
  const seen = (e) => box(e).width > 0 && box(e).height > 0 && !e.closest(".modebar-container, script, style, title");
  const texts = Array.from(document.querySelectorAll("body *")).filter((e) => own(e) && seen(e));
  const word = (e) => e.textContent.trim().slice(0, 60);
  const wrong = [];
  for (const e of document.querySelectorAll("main *")) {
    if (!(e instanceof SVGElement) && !e.closest(".plot") && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) {
      wrong.push("scrolls sideways: " + e.tagName + "." + e.className + " " + word(e));
    }
  }
  for (const e of texts) {
    if (contrast(e) < least) { wrong.push("too faint (" + contrast(e).toFixed(1) + "): " + word(e)); }
  }
  for (const cell of document.querySelectorAll("th, td")) {
    const said = cell.textContent.trim(), range = document.createRange();
    range.selectNodeContents(cell);
    const lines = new Set(Array.from(range.getClientRects(), (r) => Math.round(r.top))).size;
    if (lines > 1 && said.length <= 12 && !/\s/.test(said) && !getComputedStyle(cell, "::before").content.includes(":")) {
      wrong.push("broken: " + said);
    }
  }
  for (const plot of document.querySelectorAll(".figures .plot")) {
    const name = plot.parentElement.querySelector("figcaption").textContent.trim(), say = (what) => wrong.push(what + " in: " + name);
    const legend = plot.parentElement.querySelector("ul.legend"), bar = plot.querySelector(".modebar"), area = plot.querySelector(".nsewdrag");
    for (const other of [bar, area]) {
      if (legend && other && meet(box(legend), box(other))) { say("the legend is covered"); }
    }
    if (bar && area && meet(box(bar), box(area))) { say("the toolbar covers the plot"); }
    for (const axis of ["xtick", "ytick"]) {
      const marks = Array.from(plot.querySelectorAll("." + axis + " text")).filter(seen).map((e) => [word(e), e.getAttribute("transform"), box(e)]);
      const straight = marks.filter(([, turned]) => !/rotate\((?!0,)/.test(turned || ""));
      if (straight.some(([, , a], i) => straight.slice(i + 1).some(([, , b]) => meet(a, b)))) { say("marks of an axis meet"); }
    }
    for (const e of plot.querySelectorAll("svg text")) {
      if (seen(e) && (box(e).left < box(plot).left - 2 || box(e).right > box(plot).right + 2)) { say("cut off: " + word(e)); }
    }
    if (area && box(area).height < 120) { say("little room (" + Math.round(box(area).height) + ")"); }
    if (area && box(area).width < 140) { say("narrow (" + Math.round(box(area).width) + ")"); }
  }
  if (document.documentElement.scrollWidth > innerWidth) { wrong.push("the page scrolls sideways"); }
  if (Array.from(document.querySelectorAll("figure")).some((f) => f.scrollHeight > f.clientHeight + 2)) { wrong.push("figures overlap"); }
  return JSON.stringify({
    places: document.querySelectorAll(".figures .plot").length,
    drawn: Array.from(document.querySelectorAll(".figures > figure > .plot")).filter((p) => p.querySelector(".main-svg")).length,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    paper: getComputedStyle(document.body).backgroundColor,
    high: document.documentElement.scrollHeight,
    wrong: Array.from(new Set(wrong)),
  });
})
