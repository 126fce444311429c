'use strict';

const form = document.getElementById('plan');
const problem = document.getElementById('problem');
const state = document.getElementById('state');
const result = document.getElementById('result');
const standard = Object.fromEntries(new FormData(form));
const patience = 300; // ms after the last key until the plan is played
let shown = null; // the last result
let timer = 0;
let plays = 0;

// The address has each field that is not as the page comes.
function writeAddress(plan) {
  const fields = new URLSearchParams();
  for (const [name, text] of Object.entries(plan)) if (text !== standard[name]) fields.set(name, text);
  history.replaceState(null, '', '#' + fields);
}

function readAddress() {
  const fields = new URLSearchParams(location.hash.slice(1));
  for (const [name, text] of Object.entries(standard)) form.elements[name].value = fields.get(name) ?? text;
}

async function play() {
  const plan = Object.fromEntries(new FormData(form));
  writeAddress(plan);
  const began = performance.now(), own = ++plays;
  const answer = JSON.parse(await new Promise(done => tryLimits(JSON.stringify(plan), done)));
  if (own !== plays) return; // another plan has been entered since
  refuse(answer.error);
  if (!answer.result) return;
  shown = answer.result;
  result.hidden = false;
  draw();
  state.textContent = `${shown.jobs} jobs, played in ${Math.round(performance.now() - began)} ms.`;
}

function refuse(error) {
  for (const field of form.elements) field.removeAttribute('aria-invalid');
  problem.hidden = !error;
  result.classList.toggle('old', Boolean(error));
  if (!error) return;
  const field = form.elements[error.field];
  if (field) field.setAttribute('aria-invalid', 'true');
  problem.textContent = (field ? field.parentElement.firstChild.textContent.trim() + ': ' : '') + error.reason;
  state.textContent = shown ? 'Below is what was played before.' : '';
}

function draw() {
  document.getElementById('charts').replaceChildren(...shown.charts.map(chart));
  drawSides();
  drawWaits();
  document.getElementById('notes').replaceChildren(...(shown.notes ?? []).map(note => element('li', {}, note)));
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes, text = '') {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// Of a chart, in pixels.
const height = 200, left = 44, right = 8, top_ = 8, bottom = 22;

// Between two times below a chart, in seconds.
const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 345600,
  604800];

function chart(of) {
  const width = Math.max(280, document.getElementById('charts').clientWidth);
  const most = Math.max(1, ...of.units, ...of.shaped, ...of.recipe);
  const x = part => left + part * (width - left - right);
  const y = units => top_ + (1 - units / most) * (height - top_ - bottom);
  const what = `${of.scope} ${of.limit}`;
  const svg = shape('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label':
    `${what}: asynq-throttle has up to ${Math.max(...of.shaped)} units, asynq's recipe up to ${Math.max(...of.recipe)}`});
  if (shown.until > shown.from) {
    const from = x(shown.from / shown.span);
    svg.append(shape('rect', {class: 'closed', x: from, y: top_, width: x(shown.until / shown.span) - from,
      height: height - top_ - bottom}));
  }
  svg.append(shape('path', {class: 'axis', d: `M${left} ${top_}V${y(0)}H${width - right}`}));
  for (const side of ['recipe', 'shaped']) {
    svg.append(shape('path', {class: side, d: `M${x(0)} ${y(0)}${outline(of[side], x, y)}V${y(0)}Z`}));
  }
  svg.append(shape('path', {class: 'limit', d: `M${x(0)} ${y(of.units[0])}${outline(of.units, x, y)}`}));
  const step = steps.find(seconds => shown.span / seconds <= width / 90);
  for (let at = 0; at <= shown.span; at += step) {
    svg.append(shape('text', {x: x(at / shown.span), y: height - 6,
      'text-anchor': x(at / shown.span) > width - 30 ? 'end' : 'middle'}, time(at)));
  }
  const limit = of.units.at(-1);
  for (const units of new Set([0, limit, ...(most > 1.2 * limit ? [most] : [])])) {
    svg.append(shape('text', {x: left - 5, y: y(units) + 4, 'text-anchor': 'end'}, units.toLocaleString('en')));
  }
  const keys = of.scope === 'global' ? '' : ', its fullest key';
  return element('figure', {}, element('figcaption', {}, element('b', {}, what), keys), svg);
}

// The columns of a chart as a path.
function outline(columns, x, y) {
  let path = '', last = null;
  columns.forEach((units, i) => {
    if (units !== last) path += `H${x(i / columns.length).toFixed(1)}V${y(units).toFixed(1)}`;
    last = units;
  });
  return path + `H${x(1).toFixed(1)}`;
}

function drawSides() {
  const row = (title, cell, over = () => false) => element('tr', {}, element('th', {scope: 'row'}, title),
    ...[shown.shaped, shown.recipe].map(side => element('td', over(side) ? {class: 'over'} : {}, cell(side))));
  document.querySelector('#sides tbody').replaceChildren(
    row('Jobs started', side => `${side.started} of ${shown.jobs}`),
    row('The last one after', side => time(side.last)),
    row('Put back, per job', side => side.put_backs.toFixed(2)),
    row('The fullest window, of its limit', side => `${Math.round(100 * side.fullest)} %`, side => side.fullest > 1),
    row('Windows over a limit', side => side.over.toLocaleString('en'), side => side.over > 0));
}

function drawWaits() {
  const longest = Math.max(...shown.shaped.waits.concat(shown.recipe.waits).map(w => w.longest), 1e-6);
  const cell = (waits, side) => {
    if (waits.started === 0) return element('td', {}, '–');
    const bar = element('div', {class: `bar ${side}`});
    bar.style.width = `${100 * waits.longest / longest}%`;
    const missing = waits.started < waits.jobs ? `, ${waits.jobs - waits.started} not started` : '';
    return element('td', {}, `${time(waits.median)}, ${time(waits.longest)}${missing}`, bar);
  };
  document.querySelector('#waits tbody').replaceChildren(...shown.shaped.waits.map((waits, i) => element('tr', {},
    element('th', {scope: 'row'}, waits.tenant), element('td', {}, String(waits.jobs)),
    cell(waits, 'shaped'), cell(shown.recipe.waits[i], 'recipe'))));
}

// A number of seconds as people say it.
function time(seconds) {
  const [by, unit] = seconds < 120 ? [1, 's'] : seconds < 7200 ? [60, 'min'] : seconds < 172800 ? [3600, 'h'] : [86400, 'd'];
  return `${Number((seconds / by).toPrecision(3))} ${unit}`;
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(play, patience);
}

async function start() {
  const packed = Uint8Array.from(atob(document.getElementById('wasm').textContent), letter => letter.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const go = new Go();
  const {instance} = await WebAssembly.instantiate(await new Response(plain).arrayBuffer(), go.importObject);
  go.run(instance); // goes on for as long as the page is open
  readAddress();
  await play();
  form.addEventListener('input', soon);
  form.addEventListener('submit', event => event.preventDefault());
  addEventListener('hashchange', () => { readAddress(); play(); });
  addEventListener('resize', () => { if (shown) draw(); });
}

start().catch(error => {
  state.textContent = '';
  problem.hidden = false;
  problem.textContent = `This page wants a browser with WebAssembly and DecompressionStream: ${error}`;
});
