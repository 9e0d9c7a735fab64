// The overview: figures, plots, filters, and the table of groups or episodes, of which only the rows in sight are in the page.

const ROW_HEIGHT = 38;
const ROWS_AROUND = 12;

const collator = new Intl.Collator("en", { numeric: true });

function compare(one, other, descending) {
  if (one === other) return 0;
  if (one === null) return 1;
  if (other === null) return -1;
  const order = typeof one === "string" ? collator.compare(one, other) : one - other;
  return descending ? -order : order;
}

const EPISODE_COLUMNS = [
  { name: "id", title: "#", kind: "figure narrow", cell: (run, row) => number(row.id + 1) },
  { name: "label", title: "Task", kind: "task", cell: (run, row) => h("a", { href: `#/episode/${row.id + 1}` }, row.label) },
  { name: "preview", title: "Prompt", kind: "prompt", value: (run, row) => run.groups[row.group].preview, cell: (run, row) => run.groups[row.group].preview },
  { name: "reward", title: "Reward", kind: "figure mark", descends: true, cell: (run, row) => rewardMark(run, row.reward) },
  { name: "steps", title: "Steps", kind: "figure short", descends: true, cell: (run, row) => number(row.steps) },
  { name: "invalid", title: "Invalid", kind: "figure short spare", descends: true, cell: (run, row) => (row.invalid ? number(row.invalid) : "") },
  { name: "outcome", title: "Outcome", kind: "state", cell: (run, row) => outcomeMark(row.outcome) },
  { name: "seconds", title: "Time", kind: "figure short", descends: true, cell: (run, row) => seconds(row.seconds) },
];

const GROUP_COLUMNS = [
  { name: "id", title: "#", kind: "figure narrow", cell: (run, row) => number(row.id + 1) },
  { name: "label", title: "Task", kind: "task", cell: (run, row) => h("a", { href: `#/group/${row.id + 1}` }, row.label) },
  { name: "preview", title: "Prompt", kind: "prompt", cell: (run, row) => row.preview },
  { name: "reward", title: "Mean reward", kind: "figure mark", descends: true, cell: (run, row) => rewardMark(run, row.reward) },
  { name: "size", title: "Episodes", kind: "strips", descends: true, cell: (run, row) => strip(run, row.members) },
  { name: "unscored", title: "Unscored", kind: "figure short spare", descends: true, cell: (run, row) => (row.unscored ? number(row.unscored) : "") },
  { name: "steps", title: "Steps", kind: "figure short", descends: true, cell: (run, row) => number(row.steps, 1) },
  { name: "seconds", title: "Time", kind: "figure short", descends: true, cell: (run, row) => seconds(row.seconds) },
];

function groupRow(group, members) {
  return {
    id: group.id, label: group.label, preview: group.preview, members, size: members.length,
    reward: mean(members.filter((episode) => episode.reward !== null).map((episode) => episode.reward)),
    unscored: members.filter((episode) => episode.unscored).length,
    steps: mean(members.map((episode) => episode.steps)),
    seconds: mean(members.map((episode) => episode.seconds)),
  };
}

const OUTCOME_FILTERS = {
  all: ["Every outcome", () => true],
  scored: ["Scored", (episode) => !episode.unscored],
  unscored: ["Unscored", (episode) => episode.unscored],
  finished: ["Finished", (episode) => episode.outcome === "finished"],
  truncated: ["Truncated", (episode) => episode.outcome === "truncated"],
  invalid: ["With invalid actions", (episode) => episode.invalid > 0],
};

// Typed bounds may be empty or unfinished: then they bound nothing.
const bound = (typed, otherwise) => (typed.trim() === "" || Number.isNaN(Number(typed)) ? otherwise : Number(typed));

function filtered(run, state) {
  const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
  const low = bound(state.low, -Infinity);
  const high = bound(state.high, Infinity);
  const bounded = low !== -Infinity || high !== Infinity;
  const [, wanted] = OUTCOME_FILTERS[state.outcome];
  return run.episodes.filter((episode) =>
    wanted(episode) &&
    (state.split === "" || run.groups[episode.group].split === state.split) &&
    (!bounded || (episode.reward !== null && episode.reward >= low && episode.reward <= high)) &&
    words.every((word) => episode.text.includes(word)));
}

function grouped(run, episodes) {
  const members = new Map();
  for (const episode of episodes) {
    if (members.has(episode.group)) members.get(episode.group).push(episode);
    else members.set(episode.group, [episode]);
  }
  return [...members].map(([id, kept]) => groupRow(run.groups[id], kept));
}

function sorted(run, rows, columns, { column, descending }) {
  const { value = (_, row) => row[column] } = columns.find((candidate) => candidate.name === column);
  return rows.toSorted((one, other) => compare(value(run, one), value(run, other), descending) || one.id - other.id);
}

function figures(episodes) {
  const scored = episodes.filter((episode) => episode.reward !== null);
  const calls = episodes.reduce((sum, episode) => sum + episode.steps, 0);
  const invalid = episodes.reduce((sum, episode) => sum + episode.invalid, 0);
  const unscored = episodes.filter((episode) => episode.unscored).length;
  const shown = [
    ["Mean reward", number(mean(scored.map((episode) => episode.reward)))],
    ["Episodes", number(episodes.length)],
    ["Groups", number(new Set(episodes.map((episode) => episode.group)).size)],
    ["Unscored", number(unscored)],
    ["Invalid actions", calls ? `${number((100 * invalid) / calls, 1)}%` : NONE],
    ["Mean time", seconds(mean(episodes.map((episode) => episode.seconds)))],
  ];
  return h("dl", { class: "figures" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// The rows between two spacers: as many as the window shows, wherever it is scrolled to.
function rowsInSight(body, rows, drawRow) {
  let first = -1;
  let last = -1;
  return (anew) => {
    const top = body.getBoundingClientRect().top;
    const from = Math.max(0, Math.min(rows().length, Math.floor(-top / ROW_HEIGHT) - ROWS_AROUND));
    const to = Math.min(rows().length, Math.ceil((window.innerHeight - top) / ROW_HEIGHT) + ROWS_AROUND);
    if (!anew && from === first && to === last) return;
    [first, last] = [from, Math.max(from, to)];
    const spacer = (count) => {
      const cell = h("td");
      cell.style.height = `${count * ROW_HEIGHT}px`;
      return h("tr", { class: "spacer", "aria-hidden": true }, cell);
    };
    body.replaceChildren(spacer(first), ...rows().slice(first, last).map(drawRow), spacer(rows().length - last));
  };
}

function listView(run) {
  const state = {
    tab: run.groups.length < run.episodes.length ? "groups" : "episodes",
    query: "", outcome: "all", split: "", low: "", high: "",
    sort: { groups: { column: "id", descending: false }, episodes: { column: "id", descending: false } },
  };
  const columns = () => (state.tab === "groups" ? GROUP_COLUMNS : EPISODE_COLUMNS);
  let episodes = run.episodes;
  let rows = [];

  const summary = h("div", { class: "summary" });
  const counts = h("output", { class: "counts" });
  const head = h("thead");
  const body = h("tbody");
  const nothing = h("p", { class: "nothing", hidden: true }, "No episode passes the filter.");
  const table = h("table", {}, head, body);
  table.style.setProperty("--squares", Math.min(STRIP, Math.max(...run.groups.map((group) => group.members.length))));

  const drawRow = (row) => {
    const open = () => { location.hash = `#/${state.tab === "groups" ? "group" : "episode"}/${row.id + 1}`; };
    return h("tr", { onclick: open }, columns().map((column) => h("td", { class: column.kind }, column.cell(run, row))));
  };
  const drawRows = rowsInSight(body, () => rows, drawRow);

  const drawHead = () => {
    const chosen = state.sort[state.tab];
    head.replaceChildren(h("tr", {}, columns().map((column) => {
      const sorting = column.name === chosen.column && (chosen.descending ? "descending" : "ascending");
      const sort = () => {
        chosen.descending = column.name === chosen.column ? !chosen.descending : Boolean(column.descends);
        chosen.column = column.name;
        drawTable();
      };
      return h("th", { class: column.kind, scope: "col", "aria-sort": sorting },
        h("button", { type: "button", onclick: sort }, column.title, h("i", { "aria-hidden": true })));
    })));
  };

  const drawTable = () => {
    rows = sorted(run, state.tab === "groups" ? grouped(run, episodes) : episodes, columns(), state.sort[state.tab]);
    nothing.hidden = rows.length > 0;
    table.className = state.tab;
    drawHead();
    drawRows(true);
  };

  const drawSummary = () => summary.replaceChildren(figures(episodes), charts(episodes, element.clientWidth));

  const draw = () => {
    episodes = filtered(run, state);
    drawSummary();
    counts.replaceChildren(episodes.length === run.episodes.length
      ? plural(run.episodes.length, "episode") : `${number(episodes.length)} of ${plural(run.episodes.length, "episode")}`);
    drawTable();
  };

  const field = (name, element) => {
    element.addEventListener("input", () => { state[name] = element.value; draw(); });
    return element;
  };
  const choice = (name, label, options) =>
    field(name, h("select", { "aria-label": label }, options.map(([value, text]) => h("option", { value }, text))));
  const splits = [...new Set(run.groups.map((group) => group.split))].filter(Boolean).sort(collator.compare);
  const tab = (name, label) => h("button", {
    type: "button", "aria-pressed": String(state.tab === name),
    onclick: (event) => {
      state.tab = name;
      for (const button of event.currentTarget.parentNode.children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
      drawTable();
    },
  }, label);

  const search = field("query", h("input", { type: "search", placeholder: "Filter: task, prompt, tool, error \u2026", "aria-label": "Filter by text", spellcheck: "false" }));
  const tools = h("div", { class: "toolbar" },
    h("div", { class: "tabs", role: "group", "aria-label": "Rows" }, tab("groups", "Groups"), tab("episodes", "Episodes")),
    search,
    choice("outcome", "Outcome", Object.entries(OUTCOME_FILTERS).map(([value, [label]]) => [value, label])),
    splits.length > 1 && choice("split", "Split", [["", "Every split"], ...splits.map((split) => [split, split])]),
    h("span", { class: "range" }, "reward",
      field("low", h("input", { inputmode: "decimal", placeholder: "min", "aria-label": "Lowest reward" })), NONE,
      field("high", h("input", { inputmode: "decimal", placeholder: "max", "aria-label": "Highest reward" }))),
    counts);

  const element = h("main", { class: "list" }, summary, tools, table, nothing);
  new ResizeObserver(() => table.style.setProperty("--bar", `${tools.offsetHeight}px`)).observe(tools);
  let scrolled = 0;
  const follow = () => { if (!element.hidden) drawRows(false); };
  window.addEventListener("scroll", follow, { passive: true });
  window.addEventListener("resize", () => { if (!element.hidden) { drawSummary(); drawRows(true); } });
  return {
    element,
    search,
    draw,
    show: () => { element.hidden = false; drawSummary(); window.scrollTo(0, scrolled); drawRows(true); },
    hide: () => { if (!element.hidden) scrolled = window.scrollY; element.hidden = true; },
    neighbours: (id) => {
      const order = state.tab === "episodes" ? rows : episodes;
      const place = order.findIndex((episode) => episode.id === id);
      return place < 0 ? [id - 1, id + 1].map((near) => run.episodes[near]) : [order[place - 1], order[place + 1]];
    },
  };
}
