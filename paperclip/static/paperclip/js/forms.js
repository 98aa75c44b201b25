// Small manners of forms, menus, dialogs and messages. Everything here has a plain HTML twin.
import { state } from "./live.js";

// A form that is on its way cannot be sent twice.
document.addEventListener("submit", (event) => {
  if (event.defaultPrevented) return;
  const form = event.target;
  if (form.method === "get") {
    // What is not set does not belong in an address.
    for (const field of form.elements) field.disabled = field.name !== "" && field.value === "";
    return;
  }
  // After this turn, or the pressed button's own name and value would not be sent.
  setTimeout(() => {
    for (const button of form.querySelectorAll("button:not([type=button])")) button.disabled = true;
  });
});
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form button:disabled:not([data-off])")) button.disabled = false;
  for (const field of document.querySelectorAll("form[method=get] :disabled")) field.disabled = false;
});
document.addEventListener("htmx:afterRequest", (event) => {
  for (const button of event.target.querySelectorAll?.("button:disabled:not([data-off])") ?? []) button.disabled = false;
});

// Filters apply when chosen; the button remains for those without scripts.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-auto]");
  if (form) form.requestSubmit();
});

// Ctrl or Cmd with Enter sends, Escape closes menus.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    const form = event.target.closest?.("form[data-send]");
    if (form) {
      event.preventDefault();
      form.requestSubmit(form.querySelector("button[data-default]") ?? undefined);
    }
  }
  if (event.key === "Escape") {
    const open = document.querySelector("details.menu-box[open], details.company-switch[open]");
    if (open) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  }
});
document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.menu-box[open], details.company-switch[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
  const opener = event.target.closest("[data-dialog]");
  if (opener) {
    event.preventDefault();
    document.getElementById(opener.dataset.dialog)?.showModal();
  }
  const box = event.target.closest("[data-close]")?.closest("dialog, .toast");
  if (box?.close) box.close();
  else box?.remove();
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    navigator.clipboard?.writeText(copy.dataset.copy).then(() => toast("Copied", "ok"));
  }
});

export function toast(text, tone = "", undo = null) {
  const box = document.getElementById("toasts");
  const item = document.createElement("div");
  item.className = "toast";
  item.dataset.tone = tone;
  const words = document.createElement("p");
  words.textContent = text;
  item.append(words);
  if (undo) item.append(wayBack(undo));
  box.append(item);
  leave(item);
}

function wayBack({ action, fields }) {
  const form = document.createElement("form");
  form.method = "post";
  form.action = action;
  const token = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
  for (const [name, value] of Object.entries({ ...fields, csrfmiddlewaretoken: token })) {
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name, value });
    form.append(field);
  }
  const button = document.createElement("button");
  button.className = "btn btn-quiet";
  button.dataset.key = "z";
  button.textContent = "Undo";
  form.append(button);
  return form;
}

function leave(item) {
  // Bad news stays until it is read; what can be undone stays longer, and while it has the focus.
  if (item.dataset.tone === "bad") return;
  setTimeout(() => {
    if (item.matches(":hover, :focus-within")) leave(item);
    else item.remove();
  }, item.querySelector("form") ? 20000 : 6000);
}
for (const item of document.querySelectorAll(".toast")) leave(item);
document.addEventListener("toast", (event) => toast(event.detail.text ?? event.detail.value, event.detail.tone, event.detail.undo));

document.addEventListener("htmx:responseError", (event) => {
  const status = event.detail.xhr.status;
  if (status === 401) return location.reload();
  toast(status === 403 ? "Your role does not allow that." : `That did not work (${status}). Nothing was changed.`, "bad");
});
document.addEventListener("htmx:sendError", () => {
  state("retrying", "Reconnecting");
});
