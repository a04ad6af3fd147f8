// The visible texts whose contrast with what lies behind them is less than this.
(least) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], [R, G, B]) => [[r, R], [g, G], [b, B]].map(([x, y]) => x * a + y * (1 - a));
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const chain = (element) => (element ? [...chain(element.parentElement), element] : []);
  const left = ".hidden, .skip, option, :disabled";
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
    if (!words.length || !element.checkVisibility() || element.closest(left)) continue;
    let behind = [255, 255, 255];
    let opacity = 1;
    for (const each of chain(element)) {
      const style = getComputedStyle(each);
      behind = over(rgba(style.backgroundColor), behind);
      opacity *= style.opacity;
    }
    const [r, g, b, a] = rgba(getComputedStyle(element).color);
    const [one, other] = [light(over([r, g, b, a * opacity], behind)), light(behind)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < least) found.push([element.className, words[0].data.slice(0, 40), ratio]);
  }
  return found;
}
