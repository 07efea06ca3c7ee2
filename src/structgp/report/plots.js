(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function draw() {
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
    const rule = getComputedStyle(document.documentElement).getPropertyValue("--rule").trim();
    figures.forEach(function (figure, number) {
      const place = document.getElementById("plot" + number);
      const axis = { gridcolor: rule, linecolor: rule, automargin: true };
      const layout = Object.assign({}, figure.layout, {
        xaxis: Object.assign({}, axis, figure.layout.xaxis),
        yaxis: Object.assign({}, axis, figure.layout.yaxis),
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: ink }, height: 340, legend: { orientation: "h", y: 1.12 },
      });
      if (!place.dataset.drawn) { place.textContent = ""; place.dataset.drawn = "yes"; }
      Plotly.react(place, figure.data, layout, { responsive: true, displaylogo: false });
    });
  }
  if (!window.Plotly) { return; }
  draw();
  dark.addEventListener("change", draw);
})();
