// The small signs that stand for a reward, an outcome and a group.

const share = (run, reward) => {
  const [low, high] = [Math.min(0, run.rewardRange[0]), run.rewardRange[1]];
  return high > low ? (reward - low) / (high - low) : 0;
};

function rewardMark(run, reward) {
  if (reward === null) return h("span", { class: "reward" }, h("span", { class: "figure" }, NONE), h("span", { class: "track" }));
  const fill = h("i");
  fill.style.width = `${(share(run, reward) * 100).toFixed(1)}%`;
  return h("span", { class: "reward" }, h("span", { class: "figure" }, number(reward)), h("span", { class: "track" }, fill));
}

const outcomeMark = (outcome) => h("span", { class: `outcome ${outcome}` }, OUTCOMES[outcome]);

const STRIP = 24;

// One square an episode, darker for a higher reward, hollow for an unscored one.
function strip(run, members) {
  const squares = members.slice(0, STRIP).map((episode) => {
    const square = h("i", { class: episode.reward === null ? "hollow" : "", title: `episode ${episode.id + 1}: ${number(episode.reward)}` });
    if (episode.reward !== null) square.style.setProperty("--share", share(run, episode.reward).toFixed(3));
    return square;
  });
  return h("span", { class: "strip" }, squares, members.length > STRIP && h("span", {}, `+${number(members.length - STRIP)}`));
}
