"use strict";
// The server draws; this only puts what it sends in its place.

const root = document.documentElement;

// What a person has opened or closed stays so; all else is as the server has it.
const chosen = new Set();
document.addEventListener("click", ({ target }) => {
  const summary = target.closest("summary");
  if (summary) chosen.add(summary.parentElement.id);
});

const place = (part) => {
  const target = document.getElementById(part.id);
  const focused = document.activeElement?.id;
  for (const each of part.querySelectorAll("details[id]")) {
    if (chosen.has(each.id)) each.open = document.getElementById(each.id)?.open ?? each.open;
  }
  target.replaceChildren(...part.childNodes);
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
};

const connect = (address) => {
  const stream = new EventSource(address);
  stream.onopen = () => { root.dataset.link = "live"; };
  stream.onmessage = ({ data }) => {
    for (const part of [...new DOMParser().parseFromString(data, "text/html").body.children]) place(part);
  };
  stream.onerror = () => {
    root.dataset.link = "lost";
    // An answer other than 200 ends a stream for good; a restart behind a proxy gives such answers for a while.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 5000, "events");
  };
};

connect(document.body.dataset.events);
