// The page: a header, and below it what the address names: the list, one group or one episode.

function themeButton() {
  const root = document.documentElement;
  const dark = () => (root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = h("button", { type: "button", class: "theme", title: "Light or dark", "aria-label": "Light or dark" },
    svg("svg", { viewBox: "0 0 20 20", "aria-hidden": true }, svg("circle", { cx: 10, cy: 10, r: 7.25 }), svg("path", { d: "M10 2.75a7.25 7.25 0 0 1 0 14.5z" })));
  button.addEventListener("click", () => { root.style.colorScheme = dark() ? "light" : "dark"; });
  return button;
}

function start() {
  const run = readRun();
  const list = listView(run);
  const place = h("div");
  const footer = h("footer", {}, run.limits, " \u00b7 made by ors-gym ", run.version);
  document.getElementById("app").append(
    h("header", { class: "page" }, h("a", { href: "#/", class: "name" }, run.title), h("span", { class: "env" }, run.environments), h("span", { class: "gap" }), themeButton()),
    list.element, place, footer);

  let asked = 0;
  async function route() {
    const [, kind, text] = location.hash.split("/");
    const id = Number(text) - 1;
    const wanted = (asked += 1);
    const found = kind === "episode" ? run.episodes[id] : kind === "group" ? run.groups[id] : undefined;
    if (!found) {
      place.replaceChildren();
      list.show();
      return;
    }
    list.hide();
    const view = kind === "episode" ? await episodeView(run, id, list.neighbours(id)) : await groupView(run, id);
    if (wanted !== asked) return;
    place.replaceChildren(view);
    window.scrollTo(0, 0);
  }

  window.addEventListener("hashchange", route);
  window.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const pager = place.querySelectorAll(".pager a[href]");
    const turn = (label) => [...pager].find((link) => link.title.startsWith(label))?.click();
    if (event.key === "/" && !list.element.hidden) { event.preventDefault(); list.search.focus(); }
    else if (event.key === "Escape") location.hash = "#/";
    else if (event.key === "ArrowLeft") turn("Previous");
    else if (event.key === "ArrowRight") turn("Next");
  });
  list.draw();
  route();
}

start();
