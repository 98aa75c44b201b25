// A part of the page that is fetched anew keeps what somebody was busy with in it: what is
// unfolded, where the focus is, how far a box is scrolled, what was typed and not sent.

const TYPED = "textarea, input:is([type=text], [type=search], [type=number], :not([type]))";
const BOXES = ".log, .org-box, .table-box, .board, .board-cards, .said, .prose, .diff";
const END = 24; // px from its end at which a box counts as followed

// Figures and times change while the thing stays the same.
const words = (node) => node.textContent.replace(/[\d\s.,]+/g, " ").trim().slice(0, 80);
const room = (node) => node.parentElement?.closest("[id]")?.id ?? "";

function kind(node) {
  if (node.matches("details")) {
    return node.dataset.keep || node.dataset.step || `${room(node)} ${words(node.querySelector("summary") ?? node)}`;
  }
  if (node.matches("summary")) return `head of ${kind(node.parentElement)}`;
  if (node.id) return node.id;
  const form = node.closest("form")?.getAttribute("action") ?? "";
  const named = node.name ? `${node.name}=${node.matches("button") ? node.value : ""}` : "";
  const href = node.getAttribute("href") ?? "";
  return [node.tagName, href || room(node), form, named, node.matches(TYPED) || node.matches(BOXES) ? node.className : words(node)].join(" ");
}

// Each node by what it is, and the how manieth of its kind.
function named(root, selector) {
  const found = new Map();
  const seen = new Map();
  for (const node of root.querySelectorAll(selector)) {
    const name = kind(node);
    const nth = seen.get(name) ?? 0;
    seen.set(name, nth + 1);
    found.set(`${name} ${nth}`, node);
  }
  return found;
}

function keyOf(root, node) {
  const name = kind(node);
  const same = [...root.querySelectorAll(node.tagName)].filter((one) => kind(one) === name);
  return { name, tag: node.tagName, nth: same.indexOf(node) };
}

function again(root, { name, tag, nth }) {
  return [...root.querySelectorAll(tag)].filter((one) => kind(one) === name)[nth];
}

function look(target) {
  const at = document.activeElement;
  const active = target.contains(at) && target !== at ? at : null;
  const boxes = [...named(target, BOXES)].filter(([, box]) => box.scrollTop || box.scrollLeft);
  return {
    id: target.id,
    target,
    active,
    focus: active && keyOf(target, active),
    folds: [...named(target, "details")].map(([key, fold]) => [key, fold, fold.open]),
    boxes: boxes.map(([key, box]) => [key, box, box.scrollTop, box.scrollLeft, box.scrollHeight - box.scrollTop - box.clientHeight < END]),
    typed: [...named(target, TYPED)].filter(([, field]) => field.value !== field.defaultValue).map(([key, field]) => [key, field.value]),
  };
}

function unfold(folds, now) {
  for (const [key, old, open] of folds) {
    const fold = now.get(key);
    if (!fold || fold === old) continue;
    if (!open) {
      if ("touched" in old.dataset) fold.open = false;
      continue;
    }
    const read = old.lastElementChild;
    const empty = fold.querySelector(":scope > [hx-trigger^=toggle]");
    // What was fetched when it was unfolded moves over as it stands: it is being read.
    if (empty && read.querySelector("[data-log]")) empty.replaceWith(read);
    else if (empty) return document.addEventListener("htmx:afterSettle", () => { fold.open = true; }, { once: true });
    fold.open = true;
  }
}

function scroll(boxes, now) {
  for (const [key, old, top, left, atEnd] of boxes) {
    const box = old.isConnected ? old : now.get(key);
    if (!box) continue;
    box.dataset.kept = "";
    box.scrollTop = atEnd && box.matches(".log") ? box.scrollHeight : top;
    box.scrollLeft = left;
  }
}

function focus(before, root) {
  if (!before.active || (document.activeElement !== document.body && document.activeElement !== null)) return;
  const found = before.active.isConnected ? before.active : again(root, before.focus);
  const there = found && !found.disabled;
  // Gone for good: the next Tab goes on from here, and no key presses another button instead.
  if (!there && !root.hasAttribute("tabindex")) root.setAttribute("tabindex", "-1");
  (there ? found : root).focus({ preventScroll: true });
}

function giveBack(before, typed) {
  const root = before.id ? document.getElementById(before.id) : before.target;
  if (!root?.isConnected) return;
  unfold(before.folds, named(root, "details"));
  if (typed) {
    const fields = named(root, TYPED);
    for (const [key, value] of before.typed) if (fields.has(key)) fields.get(key).value = value;
  }
  scroll(before.boxes, named(root, BOXES));
  focus(before, root);
}

document.addEventListener("click", (event) => {
  const fold = event.target.closest("summary")?.parentElement;
  if (fold) fold.dataset.touched = "";
});

for (const [start, end] of [["htmx:beforeSwap", "htmx:afterSwap"], ["htmx:oobBeforeSwap", "htmx:oobAfterSwap"]]) {
  let before = null;
  document.addEventListener(start, (event) => {
    before = event.detail.shouldSwap ? look(event.detail.target) : null;
  });
  document.addEventListener(end, (event) => {
    if (!before) return;
    const seen = before;
    before = null;
    // What was sent has done its work; what a refresh finds half written has not.
    giveBack(seen, event.detail.requestConfig?.verb === "get");
  });
}
