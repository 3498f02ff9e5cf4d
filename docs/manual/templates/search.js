// The search in all pages: sections that have every word. The index is a script, because pages are also read as files,
// where a browser fetches no other data. It is loaded when somebody goes to the search field.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".search-all");
  const [field, said, list] = ["input", "output", "ol"].map(name => place.querySelector(name));
  const root = place.dataset.root;
  place.hidden = false;

  const load = () => {
    if (document.getElementById("index")) return;
    const script = document.createElement("script");
    script.id = "index";
    script.src = `${root}search-index.js`;
    script.addEventListener("load", show);
    document.head.append(script);
  };

  // a section that has the words in its heading comes first, then one whose page has them in its title
  const rank = (section, words) => {
    const [heading, title] = [section.heading, section.title].map(text => text.toLowerCase());
    const all = `${title} ${heading} ${section.text}`;
    if (!words.every(word => all.includes(word))) return 0;
    return 1 + 2 * words.filter(word => heading.includes(word)).length + words.filter(word => title.includes(word)).length;
  };

  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    list.replaceChildren();
    said.textContent = "";
    if (!words.length || !window.sections) return;
    const found = window.sections.map(section => [rank(section, words), section]).filter(([number]) => number);
    found.sort((one, other) => other[0] - one[0]);
    for (const [, section] of found.slice(0, 12)) {
      const link = document.createElement("a");
      link.href = root + section.address;
      link.textContent = section.heading === section.title ? section.title : `${section.title}: ${section.heading}`;
      list.append(document.createElement("li"));
      list.lastChild.append(link);
    }
    said.textContent = found.length ? `${found.length} section${found.length > 1 ? "s" : ""}` : "No section has these words";
  };

  field.addEventListener("focus", load);
  field.addEventListener("input", show);
});
