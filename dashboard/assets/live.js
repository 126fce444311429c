// Keeps a page up to date, and shows times in the reader's zone. Pages work without it.
'use strict';

const live = document.getElementById('live');
const lost = document.getElementById('lost');

// local writes instants in the reader's zone.
function local(root) {
  const today = new Date().toDateString();
  for (const element of root.querySelectorAll('time[datetime]')) {
    const at = new Date(element.dateTime);
    if (isNaN(at)) continue;
    const clock = { hourCycle: 'h23' };
    element.textContent = at.toDateString() === today ? at.toLocaleTimeString([], clock) : at.toLocaleString([], clock);
    element.title = element.dateTime;
  }
}

// selecting tells that somebody marks text that is about to be replaced.
function selecting() {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && live.contains(selection.anchorNode);
}

let shown = '';
let pressed = false; // a link that is replaced between press and release is not followed
let waiting = '';    // came while pressed

// show replaces what is live, and leaves the focus where it was.
function show(html) {
  if (pressed) {
    waiting = html;
    return;
  }
  if (html === shown || selecting()) return;
  shown = html;
  const links = () => Array.from(live.querySelectorAll('a'));
  const focused = document.activeElement;
  const place = live.contains(focused) ? links().filter((a) => a.href === focused.href).indexOf(focused) : -1;
  const unfolded = Array.from(live.querySelectorAll('details[open]'), (element) => element.id);
  live.innerHTML = html;
  for (const id of unfolded) document.getElementById(id)?.setAttribute('open', '');
  local(live);
  if (place >= 0) {
    const same = links().filter((a) => a.href === focused.href);
    if (same.length > 0) same[Math.min(place, same.length - 1)].focus({ preventScroll: true });
  }
}

// release comes after the click that belongs to it.
function release() {
  pressed = false;
  if (waiting) show(waiting);
  waiting = '';
}

let source = null;
const silent = lost.textContent;

// ask finds out why what is new is refused, and tries again.
async function ask() {
  const asked = new AbortController();
  let pause = 2000;
  lost.textContent = silent;
  try {
    const answer = await fetch(live.dataset.events, { signal: asked.signal });
    if (answer.status === 429) {
      lost.textContent = await answer.text();
      pause = 10000;
    }
  } catch { /* it does not answer */ }
  asked.abort();
  lost.hidden = false;
  setTimeout(open, pause);
}

function open() {
  if (source || document.hidden) return;
  source = new EventSource(live.dataset.events);
  source.addEventListener('live', (event) => {
    lost.hidden = true;
    show(event.data);
    if (live.dataset.blank && !live.querySelector('[role=alert]')) location.reload(); // nothing was known at first
  });
  source.addEventListener('error', () => {
    if (source && source.readyState === EventSource.CLOSED) { // it is not tried again by itself
      source = null;
      ask();
      return;
    }
    lost.textContent = silent;
    lost.hidden = false;
  });
}

// close ends it while nobody sees the page, so that nothing is read for it.
function close() {
  if (source) source.close();
  source = null;
}

local(document);
for (const zone of document.querySelectorAll('input[name=zone]')) {
  zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone; // so that 18:00 is the reader's
}
if (live.dataset.events) {
  open();
  live.addEventListener('pointerdown', () => { pressed = true; });
  for (const end of ['pointerup', 'pointercancel']) document.addEventListener(end, () => setTimeout(release));
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
}
