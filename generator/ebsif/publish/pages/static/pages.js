// What all pages share: a button beside each command to copy it, and a search in long lists. Without JavaScript, pages
// lack only these.
"use strict";

// copies a text, and says so on a button
const copyText = async (button, text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // the clipboard needs https; this also works without
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const before = button.dataset.text || button.textContent;
  button.dataset.text = before;
  button.textContent = document.getElementById("said").textContent = "Copied";
  setTimeout(() => { button.textContent = before; document.getElementById("said").textContent = ""; }, 2000);
};

document.addEventListener("DOMContentLoaded", () => {
  const said = document.createElement("p");
  said.id = "said";
  said.className = "unseen";
  said.setAttribute("role", "status");
  document.body.append(said);

  const addButton = (place, text, what) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.title = `Copy ${what}`;
    button.setAttribute("aria-label", button.title);
    button.addEventListener("click", () => copyText(button, text));
    place.append(button);
  };

  document.querySelectorAll("pre").forEach((block) => {
    const text = block.textContent.replace(/\n$/, "");
    addButton(block, text, block.dataset.what || `“${text.split("\n")[0].slice(0, 60)}”`);
  });
  document.querySelectorAll("[data-copy]").forEach((place) => addButton(place, place.dataset.copy, place.dataset.what));

  // a search in a list: shows the entries with all words
  document.querySelectorAll("input[data-list]").forEach((input) => {
    const entries = Array.from(document.getElementById(input.dataset.list).children,
      (element) => [element, element.textContent.toLowerCase()]);
    const number = input.closest(".search").querySelector("output");
    const search = () => {
      const words = input.value.toLowerCase().split(/[\s=]+/).filter(Boolean);
      let shown = 0;
      entries.forEach(([element, text]) => {
        element.hidden = !words.every((word) => text.includes(word));
        shown += !element.hidden;
      });
      number.value = `${shown} of ${entries.length}`;
    };
    input.addEventListener("input", search);
    input.closest(".search").hidden = false;
    search();
  });
});
