// Follows a run's output. The server writes what is there; this appends what comes, line by line,
// and fetches the server's own rendering once the run has ended.

const CHUNK = 200;
const SGR = /\u001b\[([0-9;]*)m|\u001b(?:\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])/g;

function classes(now, codes) {
  let next = now;
  for (const code of (codes || "0").split(";").map(Number)) {
    if (code === 0) next = [];
    else if (code === 1) next = [...next, "a-b"];
    else if (code === 2) next = [...next, "a-d"];
    else if (code === 3) next = [...next, "a-i"];
    else if (code === 4) next = [...next, "a-u"];
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
      next = [...next.filter((c) => !/^a-\d/.test(c)), `a-${code}`];
    } else if (code === 39) next = next.filter((c) => !/^a-\d/.test(c));
  }
  return next;
}

export class Log {
  constructor(root) {
    this.root = root;
    this.body = root.querySelector("[data-lines]");
    this.tail = root.querySelector("[data-tail]");
    this.number = Number(root.dataset.lastLine || 0);
    this.seq = Number(root.dataset.lastSeq || 0);
    this.ansi = [];
    // The line that still grows, with its kind: the server may have ended in the middle of one.
    const last = root.dataset.openKind ? [...root.querySelectorAll(".ln > .tx")].at(-1) : null;
    this.open = last ? { kind: root.dataset.openKind, node: last } : null;
    this.steps = new Map();
    this.following = true;
    this.missed = 0;
    this.queue = [];
    root.dataset.ready = "";
    root.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.tail?.addEventListener("click", () => this.toEnd());
    // A run that has ended is read from its beginning; one that goes on is watched at its end.
    if (root.dataset.stream && !location.hash.startsWith("#L")) this.toEnd();
    else this.following = false;
    if (root.dataset.stream) this.connect();
  }

  connect() {
    const address = new URL(this.root.dataset.stream, location.href);
    address.searchParams.set("after", this.seq);
    this.source = new EventSource(address);
    this.pill("connecting", "Connecting");
    this.source.onopen = () => this.pill("live", "Live");
    this.source.onerror = () => {
      if (this.source.readyState === EventSource.CLOSED) {
        this.pill("retrying", "Reconnecting");
        clearTimeout(this.again);
        this.again = setTimeout(() => this.connect(), 2000);
      } else this.pill("retrying", `Reconnecting at ${this.number}`);
    };
    const hear = (event) => this.hear(event);
    for (const kind of ["status", "text", "stdout", "stderr", "step", "usage", "system"]) {
      this.source.addEventListener(kind, hear);
    }
    this.source.addEventListener("done", () => this.end());
    addEventListener("pagehide", () => this.source.close(), { once: true });
  }

  hear(event) {
    let item;
    try {
      item = JSON.parse(event.data);
    } catch {
      return;
    }
    const seq = Number(item.seq ?? event.lastEventId);
    if (seq && seq <= this.seq) return; // seen: a reconnect may repeat
    if (seq) this.seq = seq;
    item.kind ??= event.type;
    this.queue.push(item);
    if (!this.frame) this.frame = requestAnimationFrame(() => this.flush());
    if (document.hidden) this.flush();
  }

  flush() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const before = this.number;
    for (const item of this.queue.splice(0)) this.append(item);
    if (this.following) this.toEnd();
    else {
      this.missed += this.number - before;
      this.offer();
    }
  }

  append(item) {
    const data = item.data ?? {};
    if (item.kind === "text") this.text(data.channel === "thinking" ? "thinking" : "text", item.text ?? "");
    else if (item.kind === "stdout" || item.kind === "stderr") this.text(item.kind, item.text ?? "");
    else if (item.kind === "system") { this.open = null; this.text("system", item.text ?? ""); this.open = null; }
    else if (item.kind === "step") this.step(data, item.text ?? "");
    else if (item.kind === "usage") this.usage(data);
  }

  text(kind, text) {
    if (this.open?.kind !== kind) this.open = null;
    const pieces = text.split("\n");
    pieces.forEach((piece, index) => {
      if (index > 0 || !this.open) {
        if (index === pieces.length - 1 && piece === "") { this.open = null; return; }
        this.open = { kind, node: this.line(kind) };
      }
      this.write(this.open.node, piece);
    });
  }

  line(kind, into = null) {
    const row = document.createElement("div");
    row.className = "ln";
    row.dataset.k = kind;
    const gutter = document.createElement("a");
    const text = document.createElement("span");
    text.className = "tx";
    if (!into) {
      this.number += 1;
      row.id = `L${this.number}`;
      gutter.href = `#L${this.number}`;
      gutter.textContent = this.number;
    }
    row.append(gutter, text);
    (into ?? this.chunk()).append(row);
    return text;
  }

  write(node, raw) {
    let at = 0;
    const put = (text) => {
      if (!text) return;
      if (!this.ansi.length) return node.append(text);
      const span = document.createElement("span");
      span.className = this.ansi.join(" ");
      span.textContent = text;
      node.append(span);
    };
    for (const match of raw.matchAll(SGR)) {
      put(raw.slice(at, match.index));
      if (match[1] !== undefined) this.ansi = classes(this.ansi, match[1]);
      at = match.index + match[0].length;
    }
    put(raw.slice(at).replaceAll("\r", ""));
  }

  chunk() {
    let last = this.body.lastElementChild;
    if (last && last.childElementCount >= CHUNK) last.dataset.full = "";
    if (!last || last.dataset.full !== undefined) {
      last = document.createElement("div");
      last.className = "chunk";
      this.body.append(last);
    }
    return last;
  }

  step(data, output) {
    this.open = null;
    const id = String(data.id ?? "");
    const there = this.steps.get(id) ?? this.known(id);
    if (data.phase === "start" || !there) {
      const fold = document.createElement("details");
      fold.className = "fold";
      const head = document.createElement("summary");
      const text = document.createElement("span");
      text.className = "tx";
      const mark = document.createElement("span");
      mark.className = "pulse";
      const name = document.createElement("span");
      name.className = "name";
      name.textContent = data.name ?? "step";
      const args = document.createElement("span");
      args.className = "args";
      args.textContent = data.input ? JSON.stringify(data.input) : "";
      const took = document.createElement("span");
      took.className = "took";
      text.append(mark, name, args, took);
      head.append(document.createElement("span"), text);
      fold.append(head);
      this.chunk().append(fold);
      fold.dataset.step = id;
      this.steps.set(id, { fold, mark, took });
    }
    if (data.phase === "end") {
      const { fold, mark, took } = this.steps.get(id) ?? there;
      mark?.remove();
      if (data.durationMs != null) took.textContent = data.durationMs < 1000 ? `${data.durationMs} ms` : `${(data.durationMs / 1000).toFixed(1)}s`;
      fold.dataset.s = data.isError ? "failed" : "succeeded";
      fold.open = Boolean(data.isError);
      const keep = this.ansi;
      this.ansi = [];
      for (const piece of output.split("\n").slice(0, 400)) this.write(this.line(data.isError ? "error" : "text", fold), piece);
      this.ansi = keep;
    }
  }

  // A step that the server wrote while it was still going on.
  known(id) {
    const fold = this.root.querySelector(`.fold[data-s=""][data-step="${CSS.escape(id)}"]`);
    return fold && { fold, mark: fold.querySelector(".pulse"), took: fold.querySelector(".took") };
  }

  usage(data) {
    for (const [name, keys] of [["input", ["inputTokens", "input_tokens"]], ["output", ["outputTokens", "output_tokens"]]]) {
      const node = document.querySelector(`[data-tokens="${name}"]`);
      const more = keys.map((k) => data[k]).find((v) => v != null);
      if (node && more) {
        node.dataset.count = Number(node.dataset.count || 0) + more;
        node.textContent = Number(node.dataset.count).toLocaleString("en");
      }
    }
  }

  end() {
    this.source?.close();
    this.flush();
    this.pill("done", `Complete, ${this.number} lines`);
    document.body.dispatchEvent(new CustomEvent("run:ended"));
  }

  scrolled() {
    const gap = this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight;
    this.following = gap < 24;
    if (this.following) this.missed = 0;
    this.offer();
  }

  offer() {
    if (!this.tail) return;
    this.tail.hidden = this.following;
    this.tail.lastElementChild.textContent = this.missed ? `${this.missed} new ${this.missed === 1 ? "line" : "lines"}` : "To the end";
  }

  toEnd() {
    this.following = true;
    this.missed = 0;
    this.root.scrollTop = this.root.scrollHeight;
    this.offer();
  }

  pill(name, text) {
    const pill = this.root.parentElement.querySelector("[data-log-conn]");
    if (!pill) return;
    pill.dataset.state = name;
    pill.lastElementChild.textContent = text;
  }
}

// The bar above: wrap, errors, search. Found lines open the fold they lie in.
class Bar {
  constructor(bar, log) {
    this.log = log;
    this.hits = [];
    this.at = -1;
    bar.addEventListener("click", (event) => {
      const act = event.target.closest("[data-act]")?.dataset.act;
      if (act === "wrap") {
        const on = log.root.toggleAttribute("data-wrap");
        event.target.closest("[data-act]").setAttribute("aria-pressed", String(on));
      }
      if (act === "error") this.jump([...log.root.querySelectorAll('[data-k="error"], [data-k="stderr"], .fold[data-s="failed"]')], 1);
      if (act === "next") this.jump(this.hits, 1);
      if (act === "previous") this.jump(this.hits, -1);
    });
    this.field = bar.querySelector("[data-find]");
    this.count = bar.querySelector("[data-found]");
    this.field?.addEventListener("input", () => this.find());
    if (this.field?.value) this.look();
    this.field?.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.jump(this.hits, event.shiftKey ? -1 : 1);
    });
    document.addEventListener("keydown", (event) => {
      if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "n") this.jump(this.hits, 1);
      if (event.key === "N") this.jump(this.hits, -1);
    });
  }

  find() {
    this.look();
    this.jump(this.hits, 1);
  }

  look() {
    const word = this.field.value.toLowerCase();
    this.hits = word.length < 2 ? [] : [...this.log.root.querySelectorAll(".ln, .fold > summary")].filter((row) => row.textContent.toLowerCase().includes(word));
    this.at = -1;
    this.count.textContent = word.length < 2 ? "" : `${this.hits.length} found`;
  }

  jump(rows, by) {
    this.log.root.querySelector("[data-on]")?.removeAttribute("data-on");
    if (!rows.length) return;
    this.at = (this.at + by + rows.length) % rows.length;
    const row = rows[this.at];
    row.closest("details")?.setAttribute("open", "");
    row.setAttribute("data-on", "");
    row.scrollIntoView({ block: "center" });
  }
}

// #L12-L40 marks a range; the plain #L12 is the browser's own.
function range(root) {
  const match = /^#L(\d+)-L(\d+)$/.exec(location.hash);
  if (!match) return;
  for (let n = Number(match[1]); n <= Math.min(Number(match[2]), Number(match[1]) + 5000); n += 1) {
    root.querySelector(`#L${n}`)?.setAttribute("data-on", "");
  }
  // Who has scrolled since the page came stays where they are.
  if (!("kept" in root.dataset)) root.querySelector(`#L${match[1]}`)?.scrollIntoView({ block: "center" });
}

export function start() {
  for (const root of document.querySelectorAll("[data-log]:not([data-ready])")) {
    const log = new Log(root);
    const bar = root.parentElement.querySelector("[data-log-bar]");
    if (bar) new Bar(bar, log);
    range(root);
  }
}
