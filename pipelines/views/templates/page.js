"use strict";
// The server draws; this asks for it again, and puts what has changed in its place.

const EVERY_MS = 2000;

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
  // What is the same stays, so that no screen reader says it again.
  if (target.innerHTML === part.innerHTML) return;
  target.replaceChildren(...part.childNodes);
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
};

const look = async () => {
  try {
    const answer = await fetch("now");
    if (!answer.ok) throw new Error(answer.status);
    const { body } = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of [...body.children]) place(part);
    document.documentElement.dataset.link = "live";
  } catch {
    document.documentElement.dataset.link = "lost";
  }
  setTimeout(look, EVERY_MS);
};

setTimeout(look, EVERY_MS);
