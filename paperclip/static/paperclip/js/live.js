// One event stream a tab. An event says only what changed ("issues", "run" + id); parts of the
// page listen on the body for `live:<topic>` and `live:<topic>:<id>` and fetch themselves anew.
// `live:all` means: something may have been missed, look again at everything.

const GATHER = 30; // ms: what belongs together arrives together
const APART = 1000; // ms between two refreshes of a topic, longer while it does not come to rest
const LONGEST = 5000;
const QUIET = 250; // ms until a part that is being fetched is looked at again
const SLEEP = 20000; // ms out of sight until the stream is given back
const paces = new Map(); // by topic: when it was told last, how far apart, what waits

export function state(name, text) {
  for (const pill of document.querySelectorAll("[data-conn]")) {
    pill.hidden = false;
    pill.dataset.state = name;
    pill.lastElementChild.textContent = text;
  }
}

// A part that is being fetched would drop a second call together with its old element, and show
// what was true before it: the call waits until the part stands.
function busy(topic) {
  const parts = document.querySelectorAll(`.htmx-request[hx-trigger*="live:"]`);
  return [...parts].some((part) => topic === "all" || part.getAttribute("hx-trigger").includes(`live:${topic} `));
}

// The first event shows at once; those that follow soon are one refresh, and the last of them is
// never lost. The more often something changes, the further apart it is fetched.
function tell(topic) {
  const pace = paces.get(topic) ?? { told: -LONGEST, apart: APART, timer: 0 };
  if (pace.timer) return;
  const since = performance.now() - pace.told;
  if (since > 2 * pace.apart) pace.apart = APART;
  pace.timer = setTimeout(() => say(topic, pace), Math.max(GATHER, pace.apart - since));
  paces.set(topic, pace);
}

function say(topic, pace) {
  if (busy(topic)) {
    pace.timer = setTimeout(() => say(topic, pace), QUIET);
    return;
  }
  const now = performance.now();
  if (now - pace.told < 2 * pace.apart) pace.apart = Math.min(LONGEST, pace.apart * 1.5);
  Object.assign(pace, { told: now, timer: 0 });
  document.body.dispatchEvent(new CustomEvent(`live:${topic}`));
  // A day's worth of topics must not stay for ever.
  if (paces.size > 100) {
    for (const [name, one] of paces) if (!one.timer && now - one.told > 2 * LONGEST) paces.delete(name);
  }
}

// Most rows that change are shown by nobody here.
function shown(name) {
  return document.querySelector(`[hx-trigger*="live:${CSS.escape(name)} "]`) !== null;
}

function hear(event) {
  let data;
  try {
    data = JSON.parse(event.data);
  } catch {
    return;
  }
  tell(data.topic);
  const one = `${data.topic}:${data.id}`;
  if (data.id && shown(one)) tell(one);
}

export function follow(address) {
  if (!address || !("EventSource" in window)) return;
  const topics = new URL(address, location.href).searchParams.get("topics").split(",").filter(Boolean);
  let source;
  let tries = 0;
  let dropped = false;
  let timer;

  function open() {
    clearTimeout(timer);
    state(dropped ? "retrying" : "connecting", dropped ? "Reconnecting" : "Connecting");
    source = new EventSource(address);
    source.onopen = () => {
      tries = 0;
      state("live", "Live");
      // What happened while the line was down is not replayed here: look again at everything.
      if (dropped) tell("all");
      dropped = false;
    };
    for (const topic of topics) source.addEventListener(topic, hear);
    source.addEventListener("resync", () => tell("all"));
    source.onerror = () => {
      dropped = true;
      source.close();
      state("retrying", navigator.onLine ? "Reconnecting" : "Offline");
      tries += 1;
      // A place that answers nothing is asked ten times in five minutes at most; whoever comes back
      // to the tab, or to the network, does not wait for that.
      const wait = Math.min(60000, 500 * 2 ** Math.min(tries, 7)) * (1 + Math.random() / 2);
      timer = setTimeout(open, wait);
    };
  }

  // A page that is left, or kept for "back", must not hold a connection.
  addEventListener("pagehide", () => {
    clearTimeout(timer);
    source?.close();
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) {
      dropped = true;
      open();
    }
  });
  // A browser allows six connections to a server: tabs that nobody looks at give theirs back.
  let asleep;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(asleep);
    if (document.hidden) {
      asleep = setTimeout(() => {
        clearTimeout(timer);
        source.close();
        state("off", "Paused");
      }, SLEEP);
    } else if (source.readyState === EventSource.CLOSED) {
      dropped = true;
      open();
    }
  });
  const back = () => {
    if (source?.readyState === EventSource.CLOSED) open();
  };
  addEventListener("online", back);
  addEventListener("focus", back);
  open();
}
