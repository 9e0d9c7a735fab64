// One episode: its prompt, every call and what came back, and its facts.

const SHORT = 80;

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== "" && value !== undefined)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function troubleOf(content) {
  return content.error && h("div", { class: "note error" }, h("b", {}, `${content.kind ? `The ${content.kind} failed` : "Error"}: this episode is unscored`), cutText(content.error));
}

function toolView(tool) {
  if ("omitted" in tool) return omitted(tool.omitted, "tool");
  return h("details", { class: "tool" }, h("summary", {}, h("code", {}, tool.name)), cutText(tool.description), tool.schema ? valueView(tool.schema) : h("p", { class: "aside" }, "no parameters"));
}

const shortEntries = (content) => (content.metadata?.entries ?? []).map(([name, written]) => [name, written.text])
  .filter(([, text]) => text.length <= SHORT && !text.includes("\n"));

function crumbs(...trail) {
  return h("nav", { class: "crumbs", "aria-label": "Where" }, trail.map((part, place) => [place > 0 && h("span", { "aria-hidden": true }, "/"), part]));
}

async function episodeView(run, id, neighbours) {
  const episode = run.episodes[id];
  const group = run.groups[episode.group];
  const content = await readEpisode(run, id);
  const [before, after] = neighbours;
  const step = (near, label, sign) => h("a", near ? { href: `#/episode/${near.id + 1}`, title: label, "aria-label": label } : { "aria-disabled": "true" }, sign);
  return h("main", { class: "episode" },
    h("div", { class: "bar-top" },
      crumbs(h("a", { href: "#/" }, "All"), h("a", { href: `#/group/${group.id + 1}` }, group.label), h("span", {}, `Episode ${number(id + 1)}`)),
      h("span", { class: "pager" }, step(before, "Previous episode", "\u2190"), step(after, "Next episode", "\u2192"))),
    h("header", { class: "title" },
      h("h1", {}, group.label, h("small", {}, group.env)),
      facts([
        [run.reward ? `Reward (${run.reward})` : "Reward", number(episode.reward)],
        ["Advantage", group.members.length > 1 ? signed(episode.advantage) : null],
        ["Steps", number(episode.steps)],
        ["Time", seconds(episode.seconds)],
        ["Outcome", outcomeMark(episode.outcome)],
      ])),
    troubleOf(content),
    h("div", { class: "halves" },
      h("div", { class: "story" },
        h("section", { class: "prompt-of" }, h("h2", {}, "Prompt"), blocksView(content.prompt, content.images)),
        h("h2", {}, content.steps.length ? "Steps" : "No step was taken"),
        stepsView(content)),
      h("aside", {},
        h("h2", {}, "About"),
        facts([["Began", moment(episode.started)], ["Session", content.session], ["Id", content.id], ...shortEntries(content)]),
        content.task && [h("h2", {}, "Task"), valueView(content.task)],
        content.tools.length > 0 && [h("h2", {}, "Tools"), content.tools.map(toolView)],
        content.metadata && shortEntries(content).length < (content.metadata.entries?.length ?? Infinity) &&
          h("details", { class: "tool" }, h("summary", {}, "All metadata"), valueView(content.metadata)))));
}
