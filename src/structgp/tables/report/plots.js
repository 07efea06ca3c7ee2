(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function draw(ink, rule) {
    figures.forEach(function (figure, number) {
      const place = document.getElementById("plot" + number);
      const axis = { gridcolor: rule, linecolor: rule, automargin: true };
      const layout = Object.assign({}, figure.layout, {
        xaxis: Object.assign({}, axis, figure.layout.xaxis),
        yaxis: Object.assign({}, axis, figure.layout.yaxis),
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: ink }, autosize: true,
      });
      if (!place.dataset.drawn) { place.textContent = ""; place.style.height = "340px"; place.dataset.drawn = "yes"; }
      Plotly.react(place, figure.data, layout, { responsive: true, displaylogo: false });
    });
  }
  function show() { draw(colour("--ink"), colour("--rule")); }
  if (!window.Plotly) { return; }
  show();
  dark.addEventListener("change", show);
  window.addEventListener("beforeprint", function () { draw("#000", "#ccc"); });
  window.addEventListener("afterprint", show);
})();
