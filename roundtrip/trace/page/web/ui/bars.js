// Small charts. Their numbers are also on the page as text, so screen readers can skip them.

const BAR = 120;
const MINUTES_HEIGHT = 90;
const UNIT_MS = { ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

function drawing(className, width, height, ...shapes) {
  const viewBox = `0 0 ${width} ${height}`;
  return draw("svg", { class: className, viewBox, width, height, "aria-hidden": "true", focusable: "false" }, ...shapes);
}

function rectangle(className, x, y, width, height) {
  return draw("rect", { class: className, x, y, width: Math.max(0, width), height: Math.max(0, height) });
}

// A stacked bar; `parts` has pairs of a class and a number.
function barOf(parts, whole) {
  let x = 0;
  const shapes = parts.map(([className, number]) => {
    const width = whole ? (number / whole) * BAR : 0;
    const shape = rectangle(className, x, 0, number ? Math.max(1, width) : 0, 10);
    x += width;
    return shape;
  });
  return drawing("bar", BAR, 10, rectangle("ground", 0, 0, BAR, 10), ...shapes);
}

function swatch(className) {
  return drawing("swatch", 10, 10, rectangle(className, 0, 0, 10, 10));
}

// Parse a duration that the server formatted, such as `40 ms` or `2 min 5 s`.
function durationOf(text) {
  return [...text.matchAll(/([\d.]+)\s*(ms|min|s|m|h|d)\b/g)].reduce((sum, [, number, unit]) => sum + Number(number) * UNIT_MS[unit], 0);
}

// The percentiles p50, p90 and p99 on a logarithmic scale.
function percentilesOf(texts, longest) {
  const decades = Math.log10(Math.max(10, longest));
  const places = texts.map((text) => (Math.log10(Math.max(1, durationOf(text))) / decades) * (BAR - 4));
  const [middle, ninety, last] = places;
  return drawing(
    "bar",
    BAR,
    12,
    rectangle("ground", 0, 5, BAR, 2),
    rectangle("span", middle, 4, last - middle, 4),
    ...[middle, ninety, last].map((place, index) => rectangle(index ? "tick" : "tick first", place, index ? 2 : 0, index ? 2 : 4, index ? 8 : 12)),
  );
}

function columnsOf(counts) {
  const most = Math.max(1, ...counts.map(([, count]) => count));
  const wide = Math.min(14, BAR / Math.max(1, counts.length));
  const shapes = counts.map(([, count], place) => {
    const height = count ? Math.max(1, (count / most) * 20) : 0;
    return rectangle("calls", place * wide, 20 - height, Math.max(1, wide - 2), height);
  });
  return drawing("bar", BAR, 20, ...shapes);
}

function minutesOf(minutes) {
  const most = Math.max(1, ...minutes.map(([, calls]) => calls));
  const wide = 1000 / Math.max(1, minutes.length);
  const shapes = minutes.flatMap(([, calls, failed], place) =>
    [["calls", calls], ["failed", failed]].map(([className, number]) => {
      const height = number ? Math.max(1, (number / most) * MINUTES_HEIGHT) : 0;
      return rectangle(className, place * wide, MINUTES_HEIGHT - height, Math.min(60, Math.max(0.5, wide * 0.85)), height);
    }),
  );
  const chart = drawing("minutes", 1000, MINUTES_HEIGHT, ...shapes);
  chart.setAttribute("preserveAspectRatio", "none");
  return chart;
}
