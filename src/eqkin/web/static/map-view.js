// A scatter plot on a canvas that can be moved and zoomed, with a grid to find the point under the pointer.

const CELLS = 64; // of the grid, along each side
const REACH = 12; // pixels from a point at which the pointer is on it
const STEP = 40; // pixels an arrow key moves

export class View {
  constructor(canvas, data, { over, chosen }) {
    Object.assign(this, { canvas, data, over, chosen, scale: 1, x: 0, y: 0, chosenField: null, at: -1 });
    this.pen = canvas.getContext("2d");
    this.extent = [data.x, data.y].map((values) => values.reduce((most, v) => Math.max(most, Math.abs(v)), 0.01));
    this.grid = new Map();
    data.ids.forEach((_, i) => {
      const cell = this.cell(data.x[i], data.y[i]);
      this.grid.get(cell)?.push(i) ?? this.grid.set(cell, [i]);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    document.addEventListener("themechange", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.listen();
  }

  cell(x, y) {
    const place = (v) => Math.min(CELLS - 1, Math.max(0, Math.floor(((v + 1) / 2) * CELLS)));
    return place(x) * CELLS + place(y);
  }

  colour(field) {
    const dark = this.dark();
    const turn = (field * 137.508 + 20) % 360; // golden angle: neighbours in the list differ
    const light = (dark ? 66 : 46) + (field % 3) * 6;
    return `hsl(${turn.toFixed(0)} ${field % 2 ? 62 : 48}% ${light}%)`;
  }

  dark() {
    return document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  /** Pixels a unit of the plane takes when all points are shown. */
  half() {
    const [across, up] = this.extent;
    return Math.min(this.canvas.clientWidth / across, this.canvas.clientHeight / up) * 0.47;
  }

  /** Where a point of the plane is on the canvas, in pixels. */
  toScreen(x, y) {
    const unit = this.half() * this.scale;
    return [this.canvas.clientWidth / 2 + (x - this.x) * unit, this.canvas.clientHeight / 2 - (y - this.y) * unit];
  }

  toPlane(left, top) {
    const unit = this.half() * this.scale;
    return [(left - this.canvas.clientWidth / 2) / unit + this.x, (this.canvas.clientHeight / 2 - top) / unit + this.y];
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const { canvas, pen, data } = this;
    const [width, height, sharp] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (canvas.width !== width * sharp || canvas.height !== height * sharp) {
      [canvas.width, canvas.height] = [width * sharp, height * sharp];
    }
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, width, height);
    const size = Math.min(7, (data.ids.length > 5000 ? 2.2 : width < 600 ? 2.6 : 3.6) * Math.sqrt(this.scale));
    const colours = data.names.map((_, i) => this.colour(i));
    for (const front of [false, true]) {
      for (let i = 0; i < data.ids.length; i++) {
        const chosen = this.chosenField === null || data.fields[i] === this.chosenField;
        if (chosen !== front) continue;
        const [left, top] = this.toScreen(data.x[i], data.y[i]);
        if (left < -9 || top < -9 || left > width + 9 || top > height + 9) continue;
        pen.globalAlpha = chosen ? 0.82 : 0.1;
        pen.fillStyle = colours[data.fields[i]];
        pen.beginPath();
        pen.arc(left, top, size, 0, 2 * Math.PI);
        pen.fill();
      }
    }
    if (this.at >= 0) this.ring(size);
    canvas.dataset.drawn = data.ids.length;
  }

  ring(size) {
    const [left, top] = this.toScreen(this.data.x[this.at], this.data.y[this.at]);
    this.pen.globalAlpha = 1;
    this.pen.strokeStyle = this.dark() ? "#fff" : "#111";
    this.pen.lineWidth = 2;
    this.pen.beginPath();
    this.pen.arc(left, top, size + 3, 0, 2 * Math.PI);
    this.pen.stroke();
  }

  /** The point nearest to a place on the canvas, -1 if none is near. */
  nearest(left, top) {
    const reach = REACH / (this.half() * this.scale);
    const [x, y] = this.toPlane(left, top);
    let [best, distance] = [-1, reach * reach];
    const step = 2 / CELLS;
    const cells = new Set();
    for (let a = x - reach - step; a <= x + reach + step; a += step) {
      for (let b = y - reach - step; b <= y + reach + step; b += step) cells.add(this.cell(a, b));
    }
    for (const cell of cells) {
      for (const i of this.grid.get(cell) ?? []) {
        if (this.chosenField !== null && this.data.fields[i] !== this.chosenField) continue;
        const away = (this.data.x[i] - x) ** 2 + (this.data.y[i] - y) ** 2;
        if (away < distance) [best, distance] = [i, away];
      }
    }
    return best;
  }

  chooseField(number) {
    this.chosenField = number;
    this.draw();
  }

  /** Zoom by a factor around a place on the canvas (its middle by default); 0 shows all. */
  zoom(factor, left = this.canvas.clientWidth / 2, top = this.canvas.clientHeight / 2) {
    const [x, y] = this.toPlane(left, top);
    this.scale = factor ? Math.min(400, Math.max(0.6, this.scale * factor)) : 1;
    if (factor) {
      const [nowX, nowY] = this.toPlane(left, top);
      [this.x, this.y] = [this.x + x - nowX, this.y + y - nowY];
    } else {
      [this.x, this.y] = [0, 0];
    }
    this.draw();
  }

  move(left, top) {
    const unit = this.half() * this.scale;
    [this.x, this.y] = [this.x - left / unit, this.y + top / unit];
    this.draw();
  }

  hover(left, top) {
    const at = this.nearest(left, top);
    if (at === this.at) return;
    this.at = at;
    this.canvas.classList.toggle("over", at >= 0);
    this.canvas.dataset.over = at >= 0 ? this.data.ids[at] : "";
    this.over(at >= 0 ? this.data.ids[at] : null, left, top);
    this.draw();
  }

  listen() {
    const { canvas } = this;
    const pointers = new Map();
    let [dragged, spread] = [0, 0];
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * 0.0016), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      if (pointers.size === 1) dragged = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const last = pointers.get(event.pointerId);
      if (!last) return this.hover(event.offsetX, event.offsetY);
      const [left, top] = [event.offsetX - last.offsetX, event.offsetY - last.offsetY];
      pointers.set(event.pointerId, event);
      dragged += Math.abs(left) + Math.abs(top);
      this.move(left / pointers.size, top / pointers.size);
      if (pointers.size === 2) {
        const [a, b] = [...pointers.values()];
        const now = Math.hypot(a.offsetX - b.offsetX, a.offsetY - b.offsetY);
        if (spread) this.zoom(now / spread, (a.offsetX + b.offsetX) / 2, (a.offsetY + b.offsetY) / 2);
        spread = now;
      }
    });
    const lift = (event) => {
      const tap = pointers.size === 1 && dragged < 6 && event.type === "pointerup";
      pointers.delete(event.pointerId);
      spread = 0;
      const at = tap ? this.nearest(event.offsetX, event.offsetY) : -1;
      if (at >= 0) this.chosen(this.data.ids[at]);
    };
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, lift);
    canvas.addEventListener("pointerleave", () => this.hover(-99, -99));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const moves = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    const zooms = { "+": 1.4, "=": 1.4, "-": 1 / 1.4, 0: 0 };
    if (moves[event.key]) this.move(...moves[event.key]);
    else if (event.key in zooms) this.zoom(zooms[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
