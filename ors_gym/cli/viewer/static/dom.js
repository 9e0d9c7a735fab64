// Building elements and formatting values. Text only ever enters the page as a text node.

const SVG = "http://www.w3.org/2000/svg";

function build(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const h = (tag, properties = {}, ...children) => build(document.createElement(tag), properties, children);
const svg = (tag, properties = {}, ...children) => build(document.createElementNS(SVG, tag), properties, children);

const MINUS = "\u2212";
const NONE = "\u2013";

function number(value, digits = 3) {
  if (value === null || value === undefined) return NONE;
  const rounded = Number(value.toFixed(digits));
  return rounded.toLocaleString("en-US", { maximumFractionDigits: digits }).replace("-", MINUS);
}

const signed = (value) => (value === null ? NONE : (value > 0 ? "+" : "") + number(value, 2));

function seconds(value) {
  if (value === null) return NONE;
  if (value < 1) return `${number(value * 1000, value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${number(value, 1)} s`;
  if (value < 7200) return `${number(value / 60, 1)} min`;
  return `${number(value / 3600, 1)} h`;
}

function bytes(value) {
  if (value < 1000) return `${value} B`;
  return value < 1e6 ? `${number(value / 1000, 1)} kB` : `${number(value / 1e6, 1)} MB`;
}

const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

function moment(epochSeconds) {
  const date = new Date(epochSeconds * 1000);
  return Number.isNaN(date.getTime()) ? NONE : date.toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}
