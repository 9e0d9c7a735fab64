// Three small plots of what the filter leaves: rewards, steps, and the reward over the run.

const HEIGHT = 140;
const FRAME = { left: 36, right: 4, top: 8, bottom: 22 };
const BINS = 20;

const insideHeight = HEIGHT - FRAME.top - FRAME.bottom;
const insideWidth = (width) => width - FRAME.left - FRAME.right;

function chart(width, title, summary, label, drawing) {
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": label }, drawing);
  const figure = h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, title), h("span", {}, summary)), picture);
  figure.style.width = `${width}px`;
  return figure;
}

function axes(width, xLabels, yLabels) {
  const bottom = HEIGHT - FRAME.bottom;
  return [
    yLabels.map(([y, label], place) => [
      svg("line", { class: place === 0 ? "axis" : "rule", x1: FRAME.left, x2: width - FRAME.right, y1: y, y2: y }),
      svg("text", { x: FRAME.left - 6, y: y + 3.5, "text-anchor": "end" }, label),
    ]),
    xLabels.map(([x, label, anchor]) => svg("text", { x, y: bottom + 15, "text-anchor": anchor }, label)),
  ];
}

const emptyChart = (width, title) =>
  chart(width, title, "", `${title}: nothing to draw`, svg("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing to draw"));

// Bins of whole numbers where the values are whole and close; otherwise equal parts of their range.
function binned(values) {
  const [low, high] = extent(values);
  const whole = values.every(Number.isInteger);
  const size = whole ? Math.max(1, Math.ceil((high - low + 1) / BINS)) : (high - low) / BINS || 1;
  const count = whole ? Math.floor((high - low) / size) + 1 : low === high ? 1 : BINS;
  const bins = Array.from({ length: count }, (_, place) => ({ from: low + place * size, to: low + (place + 1) * size, count: 0 }));
  for (const value of values) bins[Math.min(count - 1, Math.floor((value - low) / size))].count += 1;
  return { bins, whole, size };
}

function histogram(width, title, values, summary, noun) {
  if (!values.length) return emptyChart(width, title);
  const { bins, whole, size } = binned(values);
  const most = Math.max(...bins.map((bin) => bin.count));
  const step = insideWidth(width) / Math.max(bins.length, 3);
  const start = FRAME.left + (insideWidth(width) - step * bins.length) / 2;
  const bottom = HEIGHT - FRAME.bottom;
  const name = (bin) => (!whole ? `${number(bin.from)} to ${number(bin.to)}` : size === 1 ? number(bin.from) : `${number(bin.from)} to ${number(bin.to - 1)}`);
  const bars = bins.map((bin, place) => {
    const height = bin.count ? Math.max(1.5, (bin.count / most) * insideHeight) : 0;
    const thick = Math.max(1, Math.min(step - 2, 44));
    return svg("rect", { class: "bar", x: start + place * step + (step - thick) / 2, y: bottom - height, width: thick, height, rx: 1.5 },
      svg("title", {}, `${noun} ${name(bin)}: ${plural(bin.count, "episode")}`));
  });
  const middle = (place) => start + (place + 0.5) * step;
  const edges = whole
    ? bins.length <= 6
      ? bins.map((bin, place) => [middle(place), number(bin.from), "middle"])
      : [[middle(0), number(bins[0].from), "middle"], [middle(bins.length - 1), number(bins.at(-1).to - 1), "middle"]]
    : bins.length === 1
      ? [[middle(0), number(bins[0].from), "middle"]]
      : [[start, number(bins[0].from), "start"], [start + step * bins.length, number(bins.at(-1).to), "end"]];
  return chart(width, title, summary, `${title}: ${bins.map((bin) => `${name(bin)}: ${bin.count}`).join("; ")}`,
    [axes(width, edges, [[bottom, "0"], [FRAME.top, number(most)]]), bars]);
}

// The mean reward of equal stretches of the run, in the order in which episodes began.
function overTime(width, episodes) {
  const scored = episodes.filter((episode) => episode.reward !== null).sort((one, other) => one.started - other.started);
  const title = "Reward over the run";
  if (scored.length < 2) return emptyChart(width, title);
  const stretch = Math.max(1, Math.ceil(scored.length / 60));
  const points = [];
  for (let first = 0; first < scored.length; first += stretch) {
    const part = scored.slice(first, first + stretch);
    points.push([first + (part.length - 1) / 2, mean(part.map((episode) => episode.reward))]);
  }
  const [lowest, highest] = extent(points.map(([, value]) => value));
  const low = Math.min(0, lowest);
  const high = highest > low ? highest : low + 1;
  const bottom = HEIGHT - FRAME.bottom;
  const x = (place) => FRAME.left + (place / (scored.length - 1)) * insideWidth(width);
  const y = (value) => bottom - ((value - low) / (high - low)) * insideHeight;
  const line = points.map(([place, value]) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const ends = `${x(points.at(-1)[0]).toFixed(1)},${bottom} ${x(points[0][0]).toFixed(1)},${bottom}`;
  return chart(width, title, stretch > 1 ? `means of ${stretch}` : "each episode", `${title}, from ${number(points[0][1])} to ${number(points.at(-1)[1])}`, [
    axes(width, [[FRAME.left, "1", "start"], [width - FRAME.right, number(scored.length), "end"]], [[bottom, number(low, 2)], [FRAME.top, number(high, 2)]]),
    svg("polygon", { class: "area", points: `${line} ${ends}` }),
    svg("polyline", { class: "line", points: line }),
  ]);
}

const GAP = 28;

// The plots side by side in `room` pixels, or below each other where that is little.
function charts(episodes, room) {
  const abreast = room >= 660 ? 3 : 1;
  const width = Math.floor((room - GAP * (abreast - 1)) / abreast);
  const rewards = episodes.filter((episode) => episode.reward !== null).map((episode) => episode.reward);
  const steps = episodes.map((episode) => episode.steps);
  return h("section", { class: "charts", "aria-label": "Plots" },
    histogram(width, "Reward", rewards, `mean ${number(mean(rewards))}`, "reward"),
    histogram(width, "Steps", steps, `mean ${number(mean(steps), 1)}`, "steps"),
    overTime(width, episodes));
}
