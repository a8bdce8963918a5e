// Draws each figure of the page. `ast` interprets expressions, so that the page needs no right to evaluate code.
const figures = JSON.parse(document.getElementById("figures").textContent);
const views = [];
for (const place of document.querySelectorAll("[data-figure]")) {
  const options = { renderer: "svg", actions: false, ast: true, tooltip: { theme: "custom" } };
  vegaEmbed(place, figures[place.dataset.figure], options).then((drawn) => views.push(drawn.view)).catch((error) => {
    place.textContent = "This figure could not be drawn: " + error.message;
  });
}
// A figure that was hidden gets its width when it is shown.
function redraw() {
  dispatchEvent(new Event("resize"));
  for (const view of views) view.run();
}
for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", redraw);
// The learning curves have one horizontal axis at a time.
for (const button of document.querySelectorAll("button[data-axis]")) {
  button.addEventListener("click", () => {
    for (const other of button.parentNode.children) other.setAttribute("aria-pressed", String(other === button));
    button.parentNode.nextElementSibling.dataset.by = button.dataset.axis;
    redraw();
  });
}
// Paper is narrower than most screens: figures are drawn anew for it, so that their text stays legible.
function fit(printing) {
  document.documentElement.classList.toggle("printing", printing);
  redraw();
}
addEventListener("beforeprint", () => fit(true));
addEventListener("afterprint", () => fit(false));
