// Contents: text, JSON values and images, each cut as the page's maker cut it, with a link to the whole.

const whole = (href, label) => h("a", { class: "whole", href, target: "_blank", rel: "noopener noreferrer" }, label);

function cutText(content, kind = "text") {
  return h("div", { class: kind },
    h("pre", {}, content.text),
    content.size && h("p", { class: "cut" }, `the first ${bytes(content.shown)} of ${bytes(content.size)} \u00b7 `, whole(content.href, "whole text")));
}

// A JSON value as the page's maker wrote it: an object's names with their values, anything else as text.
function valueView(content) {
  if (!content) return null;
  if (!content.entries) return cutText(content, "json");
  if (!content.entries.length) return h("p", { class: "aside" }, "no parameters");
  return h("dl", { class: "values" }, content.entries.map(([name, written]) => [h("dt", {}, name), h("dd", {}, cutText(written, "entry"))]));
}

function imageView(block, images) {
  const facts = [block.mime, block.width && `${block.width} \u00d7 ${block.height}`, bytes(block.size)].filter(Boolean).join(" \u00b7 ");
  const caption = h("figcaption", {}, facts, block.href && [" \u00b7 ", whole(block.href, "full image")]);
  const drawn = block.image === null
    ? h("div", { class: "undrawn" }, block.broken ? "not a readable image" : "image not drawn here")
    : h("img", { src: images[block.image], alt: "an image from the environment", loading: "lazy", decoding: "async" });
  return h("figure", { class: "image" }, drawn, caption);
}

const omitted = (count, noun) => h("p", { class: "omitted" }, `${plural(count, noun)} left out to keep this page small; the records have them`);

function blockView(block, images) {
  if ("omitted" in block) return omitted(block.omitted, "block");
  if (block.type === "text") return cutText(block);
  if (block.type === "image") return imageView(block, images);
  return h("div", { class: "other" }, h("p", { class: "aside" }, `a block of type ${block.name}`), valueView(block.value));
}

const blocksView = (blocks, images) => blocks.map((block) => blockView(block, images));

// Whether a reason stands in what the policy was told anyway.
const told = (reason, blocks) => blocks.some((block) => block.text?.includes(reason.text));

function stepView(step, images) {
  const rewarded = step.reward !== null && h("span", { class: step.reward > 0 ? "gain" : step.reward < 0 ? "loss" : "level" }, `reward ${number(step.reward)}`);
  return h("section", { class: `step${step.invalid || step.error ? " troubled" : ""}` },
    h("header", {},
      h("span", { class: "place" }, step.place),
      step.name === null ? h("span", { class: "aside" }, "no tool call") : h("code", {}, step.name),
      h("span", { class: "gap" }), rewarded,
      step.finished && h("span", { class: "aside ended" }, "finished"),
      h("span", { class: "aside" }, seconds(step.seconds))),
    valueView(step.said),
    step.invalid && h("div", { class: "note invalid" }, h("b", {}, "Invalid action"), told(step.invalid, step.blocks) ? null : cutText(step.invalid)),
    step.error && h("div", { class: "note error" }, h("b", {}, `The ${step.kind || "environment"} failed`), cutText(step.error)),
    step.blocks.length > 0 && h("div", { class: "came" }, blocksView(step.blocks, images)),
    step.metadata && h("details", {}, h("summary", {}, "metadata"), valueView(step.metadata)));
}

const stepsView = (content) =>
  content.steps.map((step) => ("omitted" in step ? omitted(step.omitted, "step") : stepView(step, content.images)));
