// The run: an index of every episode, read at once, and the episodes' contents, unpacked a chunk at a time when they are looked at.

const OUTCOMES = {
  finished: "finished",
  truncated: "truncated",
  running: "cut off",
  environment: "environment failed",
  infrastructure: "infrastructure failed",
};

function readRun() {
  const run = JSON.parse(document.getElementById("index").textContent);
  const columns = Object.entries(run.episodes);
  run.episodes = run.episodes.reward.map((_, id) => {
    const episode = { id };
    for (const [name, column] of columns) episode[name] = column[id];
    return episode;
  });
  run.groups = run.groups.map((group, id) => ({ id, ...group, members: [] }));
  for (const episode of run.episodes) {
    const group = run.groups[episode.group];
    episode.label = group.label;
    episode.unscored = episode.outcome === "environment" || episode.outcome === "infrastructure";
    episode.text = [group.label, group.env, group.preview, episode.tools, episode.note, episode.error, OUTCOMES[episode.outcome]]
      .join("\n").toLowerCase();
    group.members.push(episode);
  }
  run.rewardRange = extent(run.episodes.filter((episode) => episode.reward !== null).map((episode) => episode.reward));
  return run;
}

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const pageRead = new Promise((resolve) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve, { once: true });
  else resolve();
});

const CHUNKS_KEPT = 24;
const unpacked = new Map();

function readChunk(number) {
  if (!unpacked.has(number)) {
    unpacked.set(number, pageRead.then(() => unpack(document.getElementById(`chunk-${number}`).textContent)));
    if (unpacked.size > CHUNKS_KEPT) unpacked.delete(unpacked.keys().next().value);
  }
  return unpacked.get(number);
}

// An episode's contents: its prompt, steps, tools and facts, with the images that its blocks name.
async function readEpisode(run, id) {
  let number = run.chunks.length - 1;
  while (run.chunks[number] > id) number -= 1;
  const chunk = await readChunk(number);
  const content = chunk.episodes[id - run.chunks[number]];
  return { ...content, tools: chunk.tools[content.tools], images: chunk.images };
}
