// Single keys: never while typing, never with a modifier, and each has a place to click as well.

const GO = { h: "/", i: "/issues/", b: "/issues/board", a: "/agents/", c: "/costs/", v: "/activity/", s: "/settings/" };
let going = 0;

function step(by) {
  const rows = [...document.querySelectorAll("#content .row-title")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
  const base = document.body.dataset.base;
  if (base && Date.now() - going < 1200 && GO[event.key]) {
    going = 0;
    event.preventDefault();
    location.assign(base + GO[event.key]);
    return;
  }
  going = event.key === "g" ? Date.now() : 0;
  if (event.key === "j") step(1);
  if (event.key === "k") step(-1);
  if (event.key === "?") document.getElementById("keys")?.showModal();
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (target) {
    event.preventDefault();
    if (target.matches("input")) target.focus();
    else target.click();
  }
});
