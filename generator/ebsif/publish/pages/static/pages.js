// What all pages share: a button beside each command to copy it, a search in long lists, and what a misspelled word
// resembles. Without JavaScript, pages lack only these.
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

// the number of letters to change, add, leave out or exchange with their neighbor
const distance = (one, other) => {
  const rows = [Array.from({length: other.length + 1}, (_, place) => place)];
  for (let i = 1; i <= one.length; i += 1) {
    rows.push([i]);
    for (let j = 1; j <= other.length; j += 1) {
      const same = one[i - 1] === other[j - 1] ? 0 : 1;
      rows[i][j] = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + same);
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]) {
        rows[i][j] = Math.min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[one.length][other.length];
};

document.addEventListener("DOMContentLoaded", () => {
  const said = document.createElement("p");
  said.id = "said";
  said.className = "unseen";
  said.setAttribute("role", "status");
  document.body.append(said);

  const addButton = (place, text, what, label = "Copy") => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = label;
    button.title = `Copy ${what}`;
    button.setAttribute("aria-label", button.title);
    button.addEventListener("click", () => copyText(button, text));
    place.append(button);
  };

  document.querySelectorAll("pre:not(.plain)").forEach((block) => {
    // what a command prints is only read
    if (block.querySelector(".language-text")) return;
    const text = block.textContent.replace(/\n$/, "");
    addButton(block, text, block.dataset.what || `“${text.split("\n")[0].slice(0, 60)}”`);
  });
  document.querySelectorAll("[data-copy]").forEach((place) => addButton(
    place, place.dataset.copy, place.dataset.what, place.dataset.label));

  // from the page of a container back to the search that led there
  document.querySelectorAll(".top a[href$='index.html']").forEach((link) => {
    let filter = "";
    try { filter = sessionStorage.getItem("filter") || ""; } catch { /* not allowed here */ }
    if (filter.length > 1 && !link.matches(".brand, [aria-current]")) link.href += filter;
  });

  // a search in the lists of a section: shows the entries with all words
  document.querySelectorAll(".search input").forEach((input) => {
    const section = input.closest("section");
    const entries = Array.from(section.querySelectorAll("li"), (element) => [element, element.textContent.toLowerCase()]);
    const lists = Array.from(section.querySelectorAll("details"), (list) => [list, list.open]);
    const number = section.querySelector("output");
    const search = () => {
      const words = input.value.toLowerCase().split(/[\s=]+/).filter(Boolean);
      let shown = 0;
      entries.forEach(([element, text]) => {
        element.hidden = !words.every((word) => text.includes(word));
        shown += !element.hidden;
      });
      lists.forEach(([list, open]) => { list.open = open || words.length > 0; });
      number.value = `${shown} of ${entries.length}`;
    };
    input.addEventListener("input", search);
    input.closest(".search").hidden = false;
    search();
  });
});
