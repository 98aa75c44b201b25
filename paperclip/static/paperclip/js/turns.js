// Who goes first: what is live waits for a person. For the answer to what they sent (it is meant
// for an element that a live part would replace), for the field they type in, for the card in
// their hand. What was told meanwhile is told again when they are done.

const reasons = [];
const missed = new Set(); // names of live events
const asked = new Map(); // what a person sent, and where its answer goes

const live = (detail) => {
  const name = detail.requestConfig.triggeringEvent?.type ?? "";
  return name.startsWith("live:") ? name : null;
};

/** `reason(part)`: must this part of the page stay as it is for now? */
export function waitFor(reason) {
  reasons.push(reason);
}

export function goOn() {
  const names = [...missed];
  missed.clear();
  for (const name of names) document.body.dispatchEvent(new CustomEvent(name));
}

function stays(detail) {
  const name = live(detail);
  if (!name || !reasons.some((reason) => reason(detail.target))) return false;
  missed.add(name);
  return true;
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (stays(event.detail)) event.preventDefault();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  if (stays(event.detail)) event.detail.shouldSwap = false;
});

waitFor((part) => [...asked.values()].some((target) => part.contains(target)));
document.addEventListener("htmx:beforeSend", (event) => {
  const { xhr, target } = event.detail;
  if (live(event.detail)) return;
  asked.set(xhr, target);
  xhr.addEventListener("loadend", () => {
    asked.delete(xhr);
    goOn();
  });
});

waitFor((part) => {
  const field = document.activeElement;
  return field?.matches("input, textarea") && part.contains(field) && !field.closest("[hx-preserve]");
});
document.addEventListener("focusout", () => setTimeout(goOn));
