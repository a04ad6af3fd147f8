// Numbers and times as people read them.

const count = new Intl.NumberFormat("en");

export function number(value) {
  return count.format(value);
}

export function dollars(value) {
  if (value === null || value === undefined) return "";
  return `$${value >= 1 || value === 0 ? value.toFixed(2) : value.toFixed(4)}`;
}

export function size(bytes) {
  if (bytes < 1_000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${(bytes / 1_000).toFixed(1)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

export function seconds(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function ago(stamp) {
  const passed = (Date.now() - Date.parse(stamp)) / 1000;
  if (!Number.isFinite(passed)) return "";
  for (const [size, unit] of [[86_400, "d"], [3_600, "h"], [60, "min"]]) {
    if (passed >= size) return `${Math.floor(passed / size)} ${unit} ago`;
  }
  return "now";
}

export function clock(stamp) {
  return stamp.length > 19 ? stamp.slice(11, 19) : stamp;
}

export function plural(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}
