// The search in all pages: sections that have every word. The index is a script, because pages are also read as files,
// where a browser fetches no other data. It is loaded when somebody goes to the search field.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".search-all");
  const [field, said, list] = ["input", "output", "ol"].map(name => place.querySelector(name));
  const root = place.dataset.root;
  const most = 10;
  place.hidden = false;

  const load = () => {
    if (document.getElementById("index")) return;
    const script = document.createElement("script");
    script.id = "index";
    script.src = `${root}search-index.js`;
    script.addEventListener("load", show);
    document.head.append(script);
  };

  // a page that has the words in its title comes first, then a section with the words in its heading
  const rank = (section, words) => {
    const [heading, title] = [section.heading, section.title].map(text => text.toLowerCase());
    const all = `${title} ${heading} ${section.text.toLowerCase()}`;
    if (!words.every(word => all.includes(word))) return 0;
    const isPage = section.heading === section.title;
    const number = text => words.filter(word => text.includes(word)).length;
    return 1 + (isPage ? 4 : 0) * number(title) + 2 * number(heading) + number(title) + (all.includes(words.join(" ")) ? 1 : 0);
  };

  // the word of the pages that a misspelled one may be, or the word itself
  const nearest = word => {
    const known = new Map();
    for (const section of window.sections) {
      for (const one of `${section.title} ${section.heading} ${section.text}`.toLowerCase().match(/[a-z][\w-]{2,}/g) || []) {
        if (one.includes(word)) return word;
        known.set(one, (known.get(one) || 0) + 1);
      }
    }
    const limit = word.length < 5 ? 1 : 2;
    const near = [...known].filter(([one]) => Math.abs(one.length - word.length) <= limit)
      .map(([one, times]) => [distance(word, one), -times, one]).filter(([number]) => number <= limit);
    near.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
    return near.length ? near[0][2] : word;
  };

  // the text around the longest of the words, from word to word
  const context = (section, words) => {
    const text = section.text;
    const [word] = words.filter(one => text.toLowerCase().includes(one)).sort((one, other) => other.length - one.length);
    const first = word ? text.toLowerCase().indexOf(word) : 0;
    const begin = first > 40 ? text.indexOf(" ", first - 40) + 1 : 0;
    return `${begin ? "… " : ""}${text.slice(begin, begin + 110).replace(/\s\S*$/, "")} …`;
  };

  const suggest = words => {
    const better = words.map(nearest);
    said.textContent = "No section has these words";
    if (better.join(" ") === words.join(" ")) return;
    said.textContent = "No section has these words. Did you mean ";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = better.join(" ");
    button.addEventListener("click", () => { field.value = button.textContent; show(); field.focus(); });
    said.append(button, "?");
  };

  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    list.replaceChildren();
    said.textContent = "";
    if (!words.length || !window.sections) return;
    const found = window.sections.map(section => [rank(section, words), section]).filter(([number]) => number);
    found.sort((one, other) => other[0] - one[0]);
    if (!found.length) return suggest(words);
    for (const [, section] of found.slice(0, most)) {
      const link = document.createElement("a");
      link.href = root + section.address;
      link.textContent = section.heading === section.title ? section.title : `${section.title}: ${section.heading}`;
      const text = document.createElement("span");
      text.textContent = context(section, words);
      const item = document.createElement("li");
      item.append(link, text);
      list.append(item);
    }
    const number = `${found.length} section${found.length > 1 ? "s" : ""}`;
    said.textContent = found.length > most ? `The first ${most} of ${number}: add a word to narrow the search` : number;
  };

  field.addEventListener("focus", load);
  field.addEventListener("input", show);
  // as on the pages of containers
  document.addEventListener("keydown", event => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    field.focus();
  });
});
