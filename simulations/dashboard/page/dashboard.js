"use strict";
// Everything from a run is put in as text, never as HTML.
const byId = (id) => document.getElementById(id);

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

const number = (value) => Number(value.toPrecision(4)).toString();

function gauge(words, value, most) {
  const label = element("label", "", words);
  const bar = element("progress");
  bar.max = most;
  bar.value = Math.min(value, most);
  label.append(bar);
  return label;
}

function head(title, state, words) {
  const line = element("h3", "", title);
  line.append(element("span", `state ${state}`, state));
  if (words) line.append(element("span", "where", words));
  return line;
}

function runCard(run) {
  const card = element("article", "card");
  card.dataset.id = run.id;
  card.append(head(run.title, run.state, run.strategy || run.kind));
  const gauges = element("div", "gauges");
  if (run.done !== null && run.total) {
    const left = run.seconds_left === null ? "" : `, ${seconds(run.seconds_left)} left`;
    gauges.append(gauge(`${run.done} of ${run.total} ${run.unit}${left}`, run.done, run.total));
  }
  if (run.epsilon !== null && run.epsilon_budget !== null) {
    const rest = run.epsilon_budget - run.epsilon;
    const left = number(rest > 1e-9 * run.epsilon_budget ? rest : 0); // else it was rounded off
    const kind = run.simulated ? " (simulated: none is spent)" : "";
    const words = `ε ${number(run.epsilon)} of ${number(run.epsilon_budget)}, ${left} left${kind}`;
    gauges.append(gauge(words, run.epsilon, run.epsilon_budget));
  }
  if (gauges.childElementCount) card.append(gauges);
  const facts = Object.entries(run.facts).map(([name, value]) =>
    name === "accuracy" ? `${name} ${(100 * value).toFixed(2)} %` : `${name} ${number(value)}`);
  if (facts.length) card.append(element("p", "", facts.join(", ")));
  if (run.failure) card.append(element("p", "failure", run.failure));
  if (run.state === "interrupted") {
    const command = run.kind === "run" ? "run" : "compare";
    card.append(element("p", "", `Continue with: fedpriv ${command} --resume ${run.directory}`));
  }
  const place = element("p", "where", run.directory);
  if (run.report) {
    const link = element("a", "", "report");
    link.href = `report/${run.id}`;
    place.append(" · ", link);
  }
  card.append(place);
  return card;
}

function table(headings, rows) {
  const made = element("table");
  const top = made.createTHead().insertRow();
  for (const heading of headings) {
    const cell = element("th", "", heading);
    cell.scope = "col";
    top.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const text of row) line.insertCell().textContent = text;
  }
  return made;
}

const ago = (value) => (value === null || value === undefined ? "" : `${seconds(value)} ago`);

function memberCard(member) {
  const card = element("article", "card");
  card.append(head(member.directory, member.state, ""));
  if (member.error) card.append(element("p", "failure", member.error));
  const ended = (member.processes || []).filter((each) => !each.alive).map((each) => each.name);
  if (ended.length) card.append(element("p", "failure", `Ended: ${ended.join(", ")}. See fedpriv deploy recover.`));
  if (member.thresholds) card.append(element("p", "", member.thresholds));
  const parties = member.parties || [];
  if (parties.length) {
    card.append(table(
      ["party", "state", "seen", "last reply", "owes a reply", "said"],
      parties.map((each) => [each.name, each.state, ago(each.seen), ago(each.replied),
        each.outstanding === null ? "" : `${each.step}, for ${seconds(each.outstanding)}`, each.error]),
    ));
  }
  const runs = member.runs || [];
  if (runs.length) {
    card.append(table(["run", "state", "why"], runs.map((each) => [each.directory, each.state, each.failure])));
  }
  return card;
}

// Cards that did not change stay as they are: nothing jumps, and a selection is kept.
function show(place, cards) {
  const before = Array.from(place.children);
  cards.forEach((card, at) => {
    if (!before[at]) place.append(card);
    else if (before[at].outerHTML !== card.outerHTML) before[at].replaceWith(card);
  });
  before.slice(cards.length).forEach((card) => card.remove());
}

async function look() {
  const pulse = byId("pulse");
  try {
    const reply = await fetch("now.json", { cache: "no-store" });
    if (!reply.ok) throw new Error(reply.statusText);
    const now = await reply.json();
    byId("watched").textContent = now.directory;
    if (now.activities.length) show(byId("runs"), now.activities.map(runCard));
    byId("members-section").hidden = !now.members.length;
    show(byId("members"), now.members.map(memberCard));
    pulse.textContent = `as of ${new Date().toLocaleTimeString()}`;
    pulse.className = "";
  } catch {
    pulse.textContent = "The dashboard was stopped: this is how things were.";
    pulse.className = "lost";
  }
  setTimeout(look, 2000);
}

look();
