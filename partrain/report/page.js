// Draws each figure of the page. `ast` interprets expressions, so that the page needs no right to evaluate code.
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const place of document.querySelectorAll("[data-figure]")) {
  vegaEmbed(place, figures[place.dataset.figure], {
    renderer: "svg", actions: false, ast: true, tooltip: { theme: "custom" },
  }).catch((error) => { place.textContent = "This figure could not be drawn: " + error.message; });
}
