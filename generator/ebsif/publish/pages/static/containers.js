// Filters the table of containers by free text and site, and folds earlier containers. The filter is kept in the address,
// so that a link can be shared and the back button works. Without JavaScript the whole table is shown.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const filter = document.getElementById("filter");
  // other names of the same component: PyTorch is torch, in containers of another name, too
  const aliases = JSON.parse(filter.dataset.aliases);
  // title and kind of GPU of each site
  const gpus = JSON.parse(filter.dataset.gpus);
  const gpuTitles = JSON.parse(filter.dataset.gpuTitles);
  const rows = Array.from(document.querySelectorAll("#containers tbody tr"), (element) => ({
    element, site: element.dataset.site, archived: element.classList.contains("archived"),
    inside: JSON.parse(element.dataset.inside), words: element.dataset.words,
  }));
  const names = new Set([...Object.keys(aliases), ...rows.flatMap((row) => Object.keys(row.inside))]);
  const words = document.getElementById("words");
  const site = document.getElementById("site");
  const number = document.getElementById("number");
  const unsure = document.getElementById("unsure");
  const unknown = document.getElementById("unknown");
  const clear = document.getElementById("clear");
  const share = document.getElementById("share");
  const suggestions = Array.from(document.querySelectorAll(".suggestion"));
  // whether archived containers were opened by hand
  let archived = false;

  const normal = (name) => name.toLowerCase().replace(/[-_.]+/g, "-");
  const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

  // a date in place of a version, which is neither older nor newer than versions, nor is a commit (as for `ebsif list`)
  const isDate = (version) => /^20\d{6}$/.test(version);
  const isVersion = (text) => /^v?\d+([-._]?(dev|a|b|rc|post)\d+|[-._]\d+)*$/.test(text);
  const isComparable = (one, other) => isDate(one) === isDate(other) && isVersion(one) && isVersion(other);
  const numbers = (version) => version.match(/^v?([\d.]*)/)[1].split(".").filter(Boolean).map(Number);
  const isEarly = (version) => /^v?[\d.]*\.?(dev|a|b|rc)\d*/.test(version);

  const compare = (one, other) => {
    const [left, right] = [numbers(one), numbers(other)];
    for (let place = 0; place < Math.max(left.length, right.length); place += 1) {
      const difference = (left[place] || 0) - (right[place] || 0);
      if (difference) return difference;
    }
    return isEarly(other) - isEarly(one);
  };

  // 2.7 begins 2.7.1, but not 2.70
  const begins = (version, text) => version === text
    || (version.startsWith(text) && !(/\d$/.test(text) && /^\d/.test(version.slice(text.length))));

  const tests = {
    "": begins, "=": begins, "==": begins,
    ">=": (one, other) => compare(one, other) >= 0, ">": (one, other) => compare(one, other) > 0,
    "<=": (one, other) => compare(one, other) <= 0, "<": (one, other) => compare(one, other) < 0,
  };

  // the free text as a list of {name, sign, version} or {word}
  const parse = (text) => {
    const parts = text.toLowerCase().replace(/\s*([=<>]+)\s*/g, "$1").split(/[\s,]+/).filter(Boolean);
    const found = [];
    for (let place = 0; place < parts.length; place += 1) {
      const part = parts[place];
      const signed = part.match(/^(.+?)(==?|>=|<=|>|<)v?(\d.*)$/);
      const joined = part.match(/^(.+)[-/]v?(\d[\w.+]*)$/);
      const next = (parts[place + 1] || "").match(/^v?(\d[\w.+]*)$/);
      if (signed && names.has(normal(signed[1]))) {
        found.push({name: normal(signed[1]), sign: signed[2], version: signed[3]});
      } else if (next && names.has(normal(part))) {
        found.push({name: normal(part), sign: "", version: next[1]});
        place += 1;
      } else if (joined && names.has(normal(joined[1]))) {
        found.push({name: normal(joined[1]), sign: "", version: joined[2]});
      } else {
        found.push({word: part});
      }
    }
    return found;
  };

  // the name under which a row has a component
  const nameIn = (row, name) => (name in row.inside ? name : aliases[name]);

  const fits = (row, {word, name, sign, version}) => {
    if (name) {
      const own = row.inside[nameIn(row, name)];
      return Boolean(own) && (!/[<>]/.test(sign) || isComparable(own, version)) && tests[sign](own, version);
    }
    if (/^v?\d[\d.]*$/.test(word)) {
      return Object.values(row.inside).some((one) => begins(one || "", word.replace(/^v/, "")))
        || row.words.includes(word);
    }
    return row.words.includes(word) || nameIn(row, normal(word)) in row.inside
      || Object.keys(row.inside).some((one) => one.includes(normal(word)));
  };

  // whether a row has a component whose version isn't recorded
  const mayFit = (row, {name}) => row.inside[nameIn(row, name)] === null;

  // marks the badges that the filter asks for, and adds those of other components
  const mark = (row, wanted) => {
    row.element.querySelectorAll(".added").forEach((badge) => badge.remove());
    row.element.querySelectorAll(".badge").forEach((badge) => badge.classList.toggle("match", wanted.has(badge.dataset.name)));
    [...wanted].filter((name) => name in row.inside && !row.element.querySelector(`[data-name="${CSS.escape(name)}"]`))
      .forEach((name) => {
        const badge = document.createElement("span");
        const version = document.createElement("b");
        badge.className = "badge match added";
        badge.dataset.name = name;
        version.textContent = row.inside[name] || "";
        badge.append(`${name} `, version);
        row.element.querySelector(".inside:nth-last-child(2)").prepend(badge, " ");
      });
  };

  // the rows of each kind, newest first, of which all but one are folded
  const kinds = Array.from(document.querySelectorAll("#containers tbody"), (body) => {
    const kind = {rows: rows.filter((row) => row.element.parentElement === body), open: false};
    kind.button = document.createElement("button");
    kind.button.type = "button";
    kind.button.className = "earlier";
    kind.button.addEventListener("click", () => { kind.open = !kind.open; fold(kind); kind.button.focus(); });
    return kind;
  });

  const fold = ({rows: some, open, button}) => {
    const [first, ...earlier] = some.filter((row) => row.shown);
    some.forEach((row) => { row.element.hidden = !row.shown || (!open && earlier.includes(row)); });
    button.textContent = `${earlier.length} earlier`;
    button.setAttribute("aria-expanded", open);
    button.hidden = !earlier.length;
    if (first) first.element.querySelector(".date").append(button);
  };

  // the known name that a mistyped one resembles
  const similar = (word) => {
    const [best, closest] = [...names].map((name) => [distance(normal(word), name), name]).sort()[0] || [];
    return best <= (word.length > 5 ? 2 : 1) ? closest : null;
  };

  // why no container has something, and what else to do. A word that isn't known is never part of a command: it may be
  // mistyped, and anybody can publish a package under such a name.
  const advice = (missing, wanted) => {
    const sites = Object.entries(gpus).filter(([name]) => !site || !site.value || site.value === name);
    const others = sites.map(([, one]) => one).filter((one) => one.kind in gpuTitles);
    const [asked] = wanted.map(({word, name}) => word || name).filter((word) => word in gpuTitles);
    if (asked && others.length && others.length === sites.length && others.every((one) => one.kind !== asked)) {
      return [`The GPUs of ${others.map((one) => one.title).join(", ")} don't use ${gpuTitles[asked]}: the containers `
        + `have ${gpuTitles[others[0].kind]}.`];
    }
    const parts = [`No container is known to have ${missing.join(", ") || "all of these"}. `];
    const guess = wanted.length === 1 && wanted[0].word ? similar(wanted[0].word) : null;
    if (guess) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = guess;
      button.addEventListener("click", () => search(guess));
      parts.push("Did you mean ", button, "? ");
    }
    const command = document.createElement("code");
    command.textContent = "ebsif extend CONTAINER --add PACKAGE";
    return [...parts, "The catalog lists only the main components. This adds a Python package to a container: ", command];
  };

  const show = () => {
    const wanted = parse(words.value);
    const isOfSite = (row) => !site || !site.value || row.site === site.value;
    const isFiltering = Boolean(wanted.length || (site && site.value));
    const badges = new Set(wanted.map(({name, word}) => name || normal(word)).filter((name) => names.has(name))
      .flatMap((name) => [name, aliases[name]]));
    rows.forEach((row) => {
      row.shown = isOfSite(row) && wanted.every((one) => fits(row, one));
      if (row.shown) mark(row, badges);
    });
    kinds.forEach(fold);
    const maybe = rows.filter((row) => !row.shown && !row.archived && isOfSite(row)
      && wanted.every((one) => fits(row, one) || mayFit(row, one)));
    document.querySelectorAll(".software").forEach((group) => {
      group.hidden = !group.querySelector("tbody tr:not([hidden])");
    });
    const current = rows.filter((row) => row.shown && !row.archived).length;
    document.querySelectorAll(".archive").forEach((archive) => {
      const shown = rows.filter((row) => row.shown && archive.contains(row.element)).length;
      archive.querySelector(".shown").textContent = shown;
      archive.hidden = shown === 0;
      // what only archived containers have is shown at once
      archive.open = archived || (isFiltering && current === 0);
    });
    document.querySelectorAll(".site").forEach((one) => { one.hidden = !one.querySelector(".software:not([hidden])"); });
    const old = rows.filter((row) => row.shown && row.archived).length;
    const all = plural(rows.filter((row) => !row.archived).length, "container");
    number.value = isFiltering ? `${current} of ${all}${old ? `, ${old} archived` : ""}` : all;
    const vague = wanted.filter((one) => maybe.some((row) => !fits(row, one))).map(({name}) => name);
    unsure.textContent = `${maybe.length} more have ${vague.join(", ")}, version not recorded`;
    unsure.hidden = !maybe.length;
    const missing = wanted.filter((one) => !rows.some((row) => fits(row, one) || mayFit(row, one)))
      .map(({word, name, sign, version}) => word || `${name}${sign || " "}${version}`);
    unknown.hidden = current + old + maybe.length > 0;
    unknown.replaceChildren(...advice(missing, wanted));
    clear.hidden = share.hidden = !isFiltering;
    keep();
    suggestions.forEach((one) => one.setAttribute("aria-pressed", typed().includes(one.textContent.toLowerCase())));
  };

  // the words between commas
  const typed = () => words.value.toLowerCase().split(",").map((one) => one.trim()).filter(Boolean);

  const search = (text) => { words.value = text; show(); remember(); };

  const address = () => {
    const choice = new URLSearchParams();
    if (words.value.trim()) choice.set("q", words.value.trim());
    if (site && site.value) choice.set("site", site.value);
    if (archived) choice.set("archived", "yes");
    return `#${choice}`;
  };

  // the pages of containers lead back to the filter
  const keep = () => { try { sessionStorage.setItem("filter", address()); } catch { /* not allowed here */ } };

  // a new entry in the history for each filter, but not for each letter that is typed
  let typing = null;
  const remember = () => {
    clearTimeout(typing);
    if (address() !== (location.hash || "#")) history.pushState(null, "", address());
  };

  const recall = () => {
    const choice = new URLSearchParams(location.hash.slice(1) || location.search);
    const wanted = choice.get("site");
    words.value = choice.get("q") || "";
    if (site) site.value = Array.from(site.options).some((one) => one.value === wanted) ? wanted : "";
    archived = choice.get("archived") === "yes";
    show();
  };

  filter.addEventListener("input", (event) => {
    show();
    clearTimeout(typing);
    if (event.target === words) typing = setTimeout(remember, 800);
  });
  filter.addEventListener("change", () => { show(); remember(); });
  filter.addEventListener("submit", (event) => { event.preventDefault(); remember(); });
  document.querySelectorAll(".archive > summary").forEach((summary) => summary.addEventListener("click", (event) => {
    event.preventDefault();
    archived = !summary.parentElement.open;
    document.querySelectorAll(".archive").forEach((archive) => { archive.open = archived; });
    remember();
  }));
  suggestions.forEach((one) => one.addEventListener("click", () => {
    const text = one.textContent.toLowerCase();
    search(typed().includes(text) ? typed().filter((other) => other !== text).join(", ") : [...typed(), text].join(", "));
  }));
  // the same names, without versions
  unsure.addEventListener("click", () => search(parse(words.value).map(({name, word}) => name || word).join(" ")));
  clear.addEventListener("click", () => {
    if (site) site.value = "";
    search("");
    words.focus();
  });
  share.addEventListener("click", () => { remember(); copyText(share, location.href); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      words.focus();
    }
  });
  window.addEventListener("popstate", recall);
  filter.hidden = false;
  recall();
});
