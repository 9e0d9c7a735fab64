// One task's episodes, side by side.

const COLUMNS_AT_FIRST = 16;

function columnView(run, episode, content, promptIsShared) {
  return h("article", { class: "column" },
    h("header", {},
      h("a", { href: `#/episode/${episode.id + 1}` }, `Episode ${number(episode.id + 1)}`),
      outcomeMark(episode.outcome),
      facts([["Reward", number(episode.reward)], ["Advantage", signed(episode.advantage)], ["Steps", number(episode.steps)], ["Time", seconds(episode.seconds)]])),
    troubleOf(content),
    !promptIsShared && h("section", { class: "prompt-of" }, blocksView(content.prompt, content.images)),
    stepsView(content));
}

async function groupView(run, id) {
  const group = run.groups[id];
  const rewards = group.members.filter((episode) => episode.reward !== null).map((episode) => episode.reward);
  const unscored = group.members.length - rewards.length;
  const columns = h("div", { class: "columns", tabindex: "0", role: "region", "aria-label": "Episodes side by side" });
  const prompt = h("section", { class: "prompt-of" });

  async function add(members) {
    const contents = await Promise.all(members.map((episode) => readEpisode(run, episode.id)));
    const shared = contents.every((content) => JSON.stringify(content.prompt) === JSON.stringify(contents[0].prompt));
    if (shared && !prompt.childNodes.length) prompt.append(h("h2", {}, "Prompt"), ...blocksView(contents[0].prompt, contents[0].images));
    const left = group.members.slice(columns.childElementCount + members.length);
    columns.append(...members.map((episode, place) => columnView(run, episode, contents[place], shared)));
    if (left.length) {
      const more = h("button", { type: "button", class: "more", onclick: () => { more.remove(); add(left.slice(0, COLUMNS_AT_FIRST)); } }, `Show more of ${number(left.length)}`);
      columns.append(more);
    }
  }
  await add(group.members.slice(0, COLUMNS_AT_FIRST));

  return h("main", { class: "group" },
    h("div", { class: "bar-top" }, crumbs(h("a", { href: "#/" }, "All"), h("span", {}, group.label)),
      h("span", { class: "pager" },
        h("a", run.groups[id - 1] ? { href: `#/group/${id}`, "aria-label": "Previous group", title: "Previous group" } : { "aria-disabled": "true" }, "\u2190"),
        h("a", run.groups[id + 1] ? { href: `#/group/${id + 2}`, "aria-label": "Next group", title: "Next group" } : { "aria-disabled": "true" }, "\u2192"))),
    h("header", { class: "title" },
      h("h1", {}, group.label, h("small", {}, group.env)),
      facts([
        [run.reward ? `Mean reward (${run.reward})` : "Mean reward", number(mean(rewards))],
        ["Range", rewards.length ? `${number(extent(rewards)[0])} to ${number(extent(rewards)[1])}` : NONE],
        ["Episodes", number(group.members.length)],
        ["Unscored", unscored ? number(unscored) : null],
        ["Rewards", strip(run, group.members)],
      ])),
    prompt, columns);
}
