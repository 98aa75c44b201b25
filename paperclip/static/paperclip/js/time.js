// Keeps ages and running clocks true on an open page; one timer, and none while hidden.

function age(seconds) {
  const ahead = seconds < 0 ? "in " : "";
  const s = Math.abs(seconds);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (s >= size) return `${ahead}${Math.floor(s / size)}${unit}`;
  }
  return ahead || s >= 10 ? `${ahead}${s}s` : "now";
}

function span(seconds) {
  const s = Math.max(0, seconds);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor(s / 3600) % 24}h`;
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function tick() {
  const now = Date.now();
  const since = (node) => Math.floor((now - Date.parse(node.dateTime)) / 1000);
  for (const node of document.querySelectorAll("time[data-elapsed]")) set(node, span(since(node)));
  for (const node of document.querySelectorAll("time[data-ago]")) set(node, age(since(node)));
}

function zones() {
  for (const node of document.querySelectorAll("time[data-local]")) {
    node.removeAttribute("data-local");
    set(node, local.format(new Date(node.dateTime)));
  }
}

zones();
setInterval(() => { if (!document.hidden) tick(); }, 1000);
document.addEventListener("visibilitychange", tick);
document.addEventListener("htmx:afterSettle", zones);
